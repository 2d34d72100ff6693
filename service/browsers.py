"""Keeping web pages out: a page that a person has open must not reach a store on that person's machine.

A service without tokens trusts who can reach its address, and any page in a browser on the machine can: by a simple
cross-site POST, which browsers send without asking, or through a name of its own that resolves to this address (DNS
rebinding). Browsers say that they are browsers, who asks – `Origin`, `Sec-Fetch-Site` – and which name was used –
`Host`. So a browser's request for a foreign name, or from a page of another origin, is `forbidden`. Other clients are
not concerned: whoever can run one on this machine needs no such trick.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from functools import lru_cache

from schemas.refusals import Code, Refusal, refuse

_OWN_SITE = (b"same-origin", b"none")


def foreign(headers: Iterable[tuple[bytes, bytes]]) -> Refusal | None:
    """The refusal of a request that a web page of another origin made, or made under a foreign name; else None."""
    host = origin = b""
    site = b"none"
    browser = False
    for name, value in headers:
        if name == b"host":
            host = value
        elif name == b"origin":
            origin, browser = value, True
        elif name == b"sec-fetch-site":
            site, browser = value, True
        elif name == b"user-agent" and value.startswith(b"Mozilla/"):
            browser = True
    if not browser:
        return None
    if not _own_name(host):
        return refuse(
            Code.FORBIDDEN, "to browsers this service answers as localhost or an IP address only, not as another Host"
        )
    if site not in _OWN_SITE or (origin and origin.partition(b"://")[2] != host):
        return refuse(Code.FORBIDDEN, "web pages of another origin may not use this service")
    return None


@lru_cache(maxsize=64)
def _own_name(host: bytes) -> bool:
    """True for an address, and for a name that always means the machine itself."""
    text = host.decode("latin-1").lower()
    name = text[1:].partition("]")[0] if text.startswith("[") else text.partition(":")[0]
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
