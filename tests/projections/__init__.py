"""Projections: the position rule, fold, rebuild and verify."""
