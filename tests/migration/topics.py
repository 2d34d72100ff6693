"""Topics of a test's own, and another machine's folder."""

from __future__ import annotations

import shutil
from pathlib import Path

from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from engine.kafka.settings import KafkaSettings
from tests.migration.stores import DATA


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


def copy_master_key(folder: Path) -> Path:
    """Another test's folder, with nothing in it but a copy of the master key; made anew at each call."""
    other = folder / "other"
    shutil.rmtree(other, ignore_errors=True)
    (other / DATA).mkdir(parents=True)
    shutil.copy(folder / DATA / "master.key", other / DATA / "master.key")
    return other
