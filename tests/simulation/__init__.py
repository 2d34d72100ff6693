"""Virtual time, so that a seed repeats a run exactly."""
