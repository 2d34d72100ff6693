"""Recorded runs, replayed against every kind of store."""
