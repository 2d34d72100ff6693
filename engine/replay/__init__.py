"""Reading a run back: its transcript, the prompts that shaped it, its family and its tool calls.

All of it comes from the run's records, found by the index of record types; nothing else is kept. Basics: a view is
read on a **prefix** of a partition's history, fixed by one read that proves itself new enough, a few records at a time,
so that a long view does not hold up others, and so that what is appended meanwhile is not half in it.

Caveats: a run's whole family lives in its home partition, since a session does and a sessionless tree does; only the
directory entry of a run's ID may lie elsewhere. A purge while a view is read makes it `run_not_found`.
"""

from engine.replay.replay import Replay

__all__ = ["Replay"]
