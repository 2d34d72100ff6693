"""Kafka as the engine uses it: settings, clients that cannot hang, topics that cannot lose history.

What the engine builds on it – the log and the keys – lives with the other logs and keys.
"""
