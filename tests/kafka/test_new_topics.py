"""Topics that were made just now: a broker that has not heard of them yet does not keep a store from opening."""

from __future__ import annotations

from typing import Any

from aiokafka.protocol.admin import DescribeConfigsRequest

from engine.kafka.client import KafkaClient
from engine.kafka.settings import KafkaSettings
from engine.kafka.topics import open_topics
from tests.kafka.topics import own_topics

PARTITIONS = 2


class BehindClient(KafkaClient):
    """A client whose first question for settings is answered by a broker that does not know of the topics."""

    def __init__(self, settings: KafkaSettings) -> None:
        super().__init__(settings)
        self.asked = 0

    async def ask(self, request: Any, seconds: float, *, controller: bool = False) -> Any:
        if isinstance(request, DescribeConfigsRequest):
            self.asked += 1
            if self.asked == 1:
                request = DescribeConfigsRequest([(2, "nobody-made-this", None)])
        return await super().ask(request, seconds, controller=controller)


async def test_a_broker_that_does_not_know_new_topics_yet_is_asked_again(bootstrap_servers: str) -> None:
    # In a cluster of three, opening failed: UnknownTopicOrPartitionError for the settings of a topic made just before.
    client = BehindClient(own_topics(bootstrap_servers))
    try:
        topics = await open_topics(client, client._brokers._settings, PARTITIONS, create=True)
    finally:
        await client.close()
    assert (topics.partitions, topics.made) == (PARTITIONS, True)
    assert client.asked == 2
