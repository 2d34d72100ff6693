"""What things are: the values, checks and readers of the lowest layer."""
