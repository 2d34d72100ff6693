"""The HTTP interface, over a store that answers what a test tells it to."""
