"""Tests of the logs: what all keep (contract), and what each adds."""
