"""What may happen: decide, the partition's loop, the logs, the keys, and the store that joins them.

`engine.decide` is pure. Everything that waits, sleeps, draws random bytes or reads a clock does so
through `engine.environment`, so that a simulation owns them.
"""
