"""The engine against everything that logs, files and callers can do to it."""
