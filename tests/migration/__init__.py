"""Stores moved from one kind of log to another, and back."""
