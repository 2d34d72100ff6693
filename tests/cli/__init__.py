"""Tests of the command line: settings, answers, errors and exit statuses, mostly of real processes."""
