"""A real Kafka broker, the program that runs it, and what tests do to it."""
