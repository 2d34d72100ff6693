"""Topics for those who make none themselves, with the settings that a store's log has."""

from __future__ import annotations

import asyncio
from typing import Final

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import for_code

_SETTINGS: Final = {"retention.ms": "-1", "retention.bytes": "-1", "max.message.bytes": str(20 * 1024 * 1024)}


def make_topic(bootstrap: str, name: str) -> None:
    """Make a topic with one partition and one replica. Blocks."""
    asyncio.run(_make(bootstrap, name))


async def _make(bootstrap: str, name: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        answer = await admin.create_topics([NewTopic(name, 1, 1, topic_configs=_SETTINGS)])
        for _, code, why in answer.topic_errors:
            if code:
                raise RuntimeError(f"the topic {name} could not be made: {why or for_code(code).__name__}")
    finally:
        await admin.close()
