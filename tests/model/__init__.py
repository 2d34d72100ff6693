"""A small in-memory reading of the contract, to judge the real stores by."""
