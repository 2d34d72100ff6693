"""Campaigns that harm real brokers, the network before them, and the stores, under a load of racing writers."""
