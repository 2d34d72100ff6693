"""The contract suite: one set of tests for every kind of store."""
