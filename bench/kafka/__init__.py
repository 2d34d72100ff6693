"""Runstore on Kafka beside what else writes to Kafka, on one partition of a broker of its own."""
