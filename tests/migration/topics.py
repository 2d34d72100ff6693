"""Topics of a test's own."""

from __future__ import annotations

from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from engine.kafka.settings import KafkaSettings


async def make_topic(settings: KafkaSettings, name: str, partitions: int = 1) -> None:
    """Make a topic with room for the largest command."""
    admin = AIOKafkaAdminClient(bootstrap_servers=settings.bootstrap_servers)
    await admin.start()
    try:
        await admin.create_topics(
            [NewTopic(name, partitions, 1, topic_configs={"max.message.bytes": str(20 * 1024 * 1024)})]
        )
    finally:
        await admin.close()
