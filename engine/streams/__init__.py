"""Streams: the records of a run, of a session or of the whole store, history first, then live, with no seam.

Basics: a stream is a **place** – the position to read on at, one for each partition it covers – and nothing else. It
reads a portion of what was applied after its place, from the projection and the log; where nothing follows, it waits
until its partition has news (`engine.watchers`), and reads again. There is no queue for a reader and so no seam between
what was there and what comes, and a reader that is slow holds nothing up and costs nothing.

Readers at the same place get the same portion, from a small cache, made once. At the end of the log all readers of one
thing are at the same place.

Caveats: what is sent may be behind what another store of the same log has written, by as long as partitions take to
look (`engine.partition.follow_seconds`). Before a record whose data key is unknown a stream lets the partition prove
that it is not behind; a session whose key is missing all the same is broken: its own streams break off, and the stream
of everything goes on without it, which is logged.
"""

from engine.streams.streams import Streams

__all__ = ["Streams"]
