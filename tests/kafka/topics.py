"""Topics of a test's own on a broker that others use too."""

from __future__ import annotations

import uuid

from engine.kafka.settings import KafkaSettings


def own_topics(bootstrap_servers: str) -> KafkaSettings:
    """Settings whose topics nobody else has."""
    return KafkaSettings(bootstrap_servers, topic_prefix=f"test-{uuid.uuid4().hex}")
