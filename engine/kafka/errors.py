"""What a call to the brokers can come to, told apart by what the caller knows afterwards.

::

    KafkaFailed
    ├── NotSent            it was not done and will not be: nothing was handed to a broker
    │   └── NotReached     and there is none to hand it to; that has lasted, so trying again at once will not help
    ├── NotAnswered        it may have been done, or may yet be: no answer, or one that leaves it open
    ├── Refused            a broker said no, and would again; `code` is Kafka's name for why
    ├── OutOfRange         a read below the first offset or above the end; both are told
    └── CannotConnect      the brokers cannot be used as the settings say: a wrong password, TLS, an address
"""

from __future__ import annotations


class KafkaFailed(Exception):
    """The base of what a call to the brokers raises. `hung_up`: a broker ended the connection."""

    def __init__(self, message: str, *, hung_up: bool = False) -> None:
        super().__init__(message)
        self.hung_up = hung_up


class NotSent(KafkaFailed):
    """Nothing was done and nothing will be: no broker was handed the request."""


class NotReached(NotSent):
    """No broker can be reached that could do it, and has not been for a while."""


class NotAnswered(KafkaFailed):
    """The outcome is not known: a request was handed to a broker and no answer settles it."""


class Refused(KafkaFailed):
    """A broker refused the request and would refuse it again."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class OutOfRange(KafkaFailed):
    """A read at an offset that the partition does not have."""


class CannotConnect(KafkaFailed):
    """No connection can be made with these settings; the message says what was wrong. Trying again will not help."""
