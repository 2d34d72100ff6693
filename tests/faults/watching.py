"""Hearing what a store says while it is opened and looked at, in place of printing it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def heard_by(watch: logging.Handler) -> Iterator[None]:
    """Let a handler alone hear everything that is logged meanwhile."""
    root = logging.getLogger()
    former, root.handlers = root.handlers, [watch]
    try:
        yield
    finally:
        root.handlers = former
