"""Streams: what readers get, over real connections and on virtual time."""
