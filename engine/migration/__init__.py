"""Moving a store from one kind of log to another: records at their own positions, and all keys.

A position is an offset, so record IDs and cursors stay good, and projections too. What counts is copied byte for byte;
what is void stays behind.
"""
