"""Ports of the loopback address."""

from __future__ import annotations

import random
import socket
from pathlib import Path
from typing import Final

LOOPBACK: Final = "127.0.0.1"

_EPHEMERAL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
port_min: Final = 12_000
attempts_max: Final = 10_000


def free_ports(count: int) -> list[int]:
    """Choose that many different ports on which nobody listens.

    They lie below those that the system gives to outgoing connections. Otherwise, while a broker is dead, its port
    could be given away; even to a client that tries to reach it, which would then talk to itself.
    """
    port_limit = int(_EPHEMERAL.read_text().split()[0]) if _EPHEMERAL.exists() else 32_768
    if port_limit <= port_min:
        port_limit = 49_152
    generator = random.SystemRandom()
    found: set[int] = set()
    for _ in range(attempts_max):
        port = generator.randrange(port_min, port_limit)
        if port not in found and is_free(port):
            found.add(port)
        if len(found) == count:
            return sorted(found)
    raise OSError(f"no {count} free ports between {port_min} and {port_limit}")


def is_free(port: int) -> bool:
    """Whether a broker could listen there."""
    with socket.socket() as listener:
        # As Java does: connections of a listener that is gone do not keep the next one from its port.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, port))
            listener.listen()
        except OSError:
            return False
    return True
