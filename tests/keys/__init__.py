"""The keys: what is kept, what is gone after a purge, and what is refused."""
