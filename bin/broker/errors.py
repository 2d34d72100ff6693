"""What `bin/kafka` says when it does not do what it was asked.

The whole tree::

    BrokerError                status 1: a broker does not do what was asked of it
    ├── MissingError           status 1: Java, Maven or the jars are not here, and cannot be had
    └── UsageError             status 2: what was asked makes no sense for this cluster
"""

from __future__ import annotations


class BrokerError(Exception):
    """A command failed; the message says why and what to do."""

    status = 1


class MissingError(BrokerError):
    """Something that brokers need is not on this machine."""


class UsageError(BrokerError):
    """What was asked for makes no sense here."""

    status = 2
