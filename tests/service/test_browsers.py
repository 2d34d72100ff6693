"""Web pages of other origins are kept out; other clients, and this service's own pages, are not."""

from __future__ import annotations

import pytest

from service.browsers import foreign


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"host": "127.0.0.1:8420"},
        {"host": "localhost"},
        {"host": "LOCALHOST:8420"},
        {"host": "store.localhost:8420"},
        {"host": "[::1]:8420"},
        {"host": "10.0.0.7:8420"},
        {"host": "127.0.0.1:8420", "origin": "http://127.0.0.1:8420", "sec-fetch-site": "same-origin"},
        {"host": "127.0.0.1:8420", "sec-fetch-site": "none"},
        {"host": "127.0.0.1:8420", "user-agent": "Mozilla/5.0"},
        {"host": "store", "user-agent": "python-httpx/0.28"},
    ],
)
def test_these_may_ask(headers: dict[str, str]) -> None:
    assert foreign([(name.encode(), value.encode()) for name, value in headers.items()]) is None


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "rebind.evil.example:8420", "user-agent": "Mozilla/5.0"},
        {"host": "localhost.evil.example", "user-agent": "Mozilla/5.0"},
        {"host": "127.0.0.1.evil.example", "sec-fetch-site": "same-origin"},
        {"user-agent": "Mozilla/5.0"},
        {"host": "127.0.0.1:8420", "origin": "https://evil.example"},
        {"host": "127.0.0.1:8420", "origin": "null"},
        {"host": "127.0.0.1:8420", "origin": "http://127.0.0.1:9999"},
        {"host": "127.0.0.1:8420", "sec-fetch-site": "cross-site"},
        {"host": "127.0.0.1:8420", "sec-fetch-site": "same-site"},
    ],
)
def test_these_may_not(headers: dict[str, str]) -> None:
    refusal = foreign([(name.encode(), value.encode()) for name, value in headers.items()])
    assert refusal is not None
    assert refusal.code == "forbidden"
