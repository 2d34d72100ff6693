"""A store's two topics: made with the right settings, or checked and refused where they could lose or reorder history.

What counts is what a broker applies, its own defaults included. `<prefix>.log` is the log, with as many partitions as
the store; `<prefix>.keys` holds the wrapped data keys in one, compacted. Two stores may make them at the same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from aiokafka import errors as codes
from aiokafka.protocol.admin import CreateTopicsRequest, DescribeConfigsRequest
from aiokafka.protocol.metadata import MetadataRequest

from engine.data_folder import OpeningError, partitions_default, partitions_max
from engine.kafka.client import KafkaClient
from engine.kafka.errors import CannotConnect, KafkaFailed, NotAnswered, NotSent
from engine.kafka.settings import KafkaSettings
from engine.keys.topic import segment_ms
from engine.keys.topic import topic_settings as keys_settings

T = TypeVar("T")

message_bytes_min: Final = 20 * 1024 * 1024
"""What the largest batch that the engine makes fits in."""

request_seconds_max: Final = 5.0
appear_seconds_max: Final = 15.0
"""How long a topic that was made may take until its partitions have leaders."""

look_again_seconds: Final = 0.02

keys_lag_ms_max: Final = 7 * 24 * 3600 * 1000
"""How long a purged key may stay in the files of a topic that somebody else has made."""

_TOPIC: Final = 2
_FOREVER: Final = "-1"
_MAJORITY_FROM: Final = 3
_NO_LIMIT_MS: Final = str(2**63 - 1)


class BrokersSilent(OpeningError):
    """No broker answers, or none as it should: the same settings may do later."""


class TopicUnfit(OpeningError):
    """A topic could lose or reorder what is in it; `setting` is Kafka's name of what is wrong."""

    def __init__(
        self, topic: str, setting: str, value: str, must_be: str, advice: str = "change it, then start again"
    ) -> None:
        super().__init__(f"topic {topic}: {setting} is {value}, and must be {must_be}; {advice}")
        self.topic = topic
        self.setting = setting
        self.value = value


@dataclass(frozen=True, slots=True)
class Topics:
    """What the brokers hold of a store: how many partitions, and whether there is anything in the topics yet."""

    partitions: int
    made: bool
    """True when this call made the log's topic."""
    keys_end: int
    keys_segment_ms: int
    """After how long a new record begins a new segment of the topic of keys."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """What one setting must be: `fits` is asked with its value."""

    must_be: str
    fits: Callable[[str], bool]


async def open_topics(
    client: KafkaClient, settings: KafkaSettings, partitions: int | None, *, create: bool, complete: bool = False
) -> Topics:
    """Make the topics where they are missing and `create` says so, and check them.

    `partitions` None: as they are, or the default for new ones. `complete`: also make one that is missing beside one
    that is in use, for a caller who knows what was in it. Raises `OpeningError`, of which `TopicUnfit` and
    `BrokersSilent` are two.
    """
    try:
        return await _open(client, settings, partitions, create=create, complete=complete)
    except CannotConnect as error:
        raise OpeningError(f"Kafka at {settings.bootstrap_servers}: {error}") from error
    except KafkaFailed as error:
        raise BrokersSilent(f"Kafka at {settings.bootstrap_servers} does not answer as it should: {error}") from error


async def _open(
    client: KafkaClient, settings: KafkaSettings, partitions: int | None, *, create: bool, complete: bool
) -> Topics:
    await client.connect(request_seconds_max)
    names = (settings.log_topic, settings.keys_topic)
    found = await _described(client, names)
    made = False
    missing = [name for name in names if name not in found]
    if missing:
        if not create:
            raise OpeningError(
                f"there is no topic {missing[0]} at {settings.bootstrap_servers}: no store of this prefix is there, or "
                "what it held is lost"
            )
        if not complete:
            await _refuse_half(client, settings, found)
        wanted = partitions_default if partitions is None else partitions
        if not 1 <= wanted <= partitions_max:
            raise OpeningError(f"partitions must be 1 to {partitions_max}, not {wanted}")
        made = settings.log_topic in await _make(client, settings, missing, wanted)
        found = await _appeared(client, names)
    replicas = {name: min(map(len, each)) for name, each in found.items()}
    count = len(found[settings.log_topic])
    if partitions is not None and count != partitions:
        advice = "leave out --partitions, or choose another --kafka-topic-prefix for another store: it never changes"
        raise TopicUnfit(settings.log_topic, "the number of partitions", str(count), str(partitions), advice)
    if len(found[settings.keys_topic]) != 1:
        has = str(len(found[settings.keys_topic]))
        advice = "a topic's partitions are never fewer: make it anew if it is empty, or choose another prefix"
        raise TopicUnfit(settings.keys_topic, "the number of partitions", has, "1", advice)
    applied = await _repeated(partial(_settings, client, names))
    for name, values in applied.items():
        rules = _log_rules() if name == settings.log_topic else _keys_rules()
        _check(name, values, {**rules, **_replica_rules(settings, name, replicas[name])})
    for name, each in ((settings.log_topic, count), (settings.keys_topic, 1)):
        asked = partial(client.starts, name, range(each), request_seconds_max)
        for partition, start in (await _repeated(asked)).items():
            if start != 0:
                raise TopicUnfit(name, f"the first offset of partition {partition}", str(start), "0: records are lost")
    asked_end = partial(client.end, settings.keys_topic, 0, request_seconds_max)
    return Topics(count, made, await _repeated(asked_end), segment_ms(applied[settings.keys_topic]))


async def _refuse_half(client: KafkaClient, settings: KafkaSettings, found: Mapping[str, list[list[int]]]) -> None:
    """Refuse to make one topic beside another that is in use: then it is lost. Beside an empty one it is being made."""
    for name, other in ((settings.log_topic, settings.keys_topic), (settings.keys_topic, settings.log_topic)):
        if name not in found:
            continue
        ends = [
            await _repeated(partial(client.end, name, partition, request_seconds_max))
            for partition in range(len(found[name]))
        ]
        if any(ends) and other not in await _described(client, (other,)):
            raise OpeningError(
                f"the topic {other} is missing, and {name} is in use: what it held is lost. Bring it back from a copy; "
                f"for a new store choose another prefix than {settings.topic_prefix!r}"
            )


def _log_rules() -> dict[str, _Rule]:
    return {
        "cleanup.policy": _exactly("delete"),
        "retention.ms": _exactly(_FOREVER),
        "retention.bytes": _exactly(_FOREVER),
        "max.message.bytes": _at_least(message_bytes_min),
        "unclean.leader.election.enable": _exactly("false"),
        "compression.type": _Rule("producer or uncompressed", lambda value: value in {"producer", "uncompressed"}),
    }


def _keys_rules() -> dict[str, _Rule]:
    return {
        "cleanup.policy": _exactly("compact"),
        "max.compaction.lag.ms": _at_most(keys_lag_ms_max),
        "segment.ms": _at_most(keys_lag_ms_max),
        "message.timestamp.type": _exactly("LogAppendTime"),
        "unclean.leader.election.enable": _exactly("false"),
        "compression.type": _Rule("producer or uncompressed", lambda value: value in {"producer", "uncompressed"}),
    }


def _replica_rules(settings: KafkaSettings, topic: str, replicas: int) -> dict[str, _Rule]:
    if settings.replication_factor is not None and replicas < settings.replication_factor:
        raise TopicUnfit(topic, "the number of replicas", str(replicas), f"at least {settings.replication_factor}")
    least = settings.min_insync_replicas or _least_in_sync(replicas)
    must_be = f"at least {least}, and no more than its {replicas} replicas"
    return {"min.insync.replicas": _Rule(must_be, lambda value: least <= int(value) <= replicas)}


def _least_in_sync(replicas: int) -> int:
    return 2 if replicas >= _MAJORITY_FROM else 1


def _exactly(wanted: str) -> _Rule:
    return _Rule(wanted, lambda value: value == wanted)


def _at_least(least: int) -> _Rule:
    return _Rule(f"at least {least}", lambda value: int(value) >= least)


def _at_most(most: int) -> _Rule:
    return _Rule(f"at most {most}", lambda value: int(value) <= most)


def _check(topic: str, values: Mapping[str, str], rules: Mapping[str, _Rule]) -> None:
    for setting, rule in rules.items():
        value = values.get(setting)
        if value is None or not rule.fits(value):
            raise TopicUnfit(topic, setting, "not told" if value is None else value, rule.must_be)


# -- requests


async def _make(client: KafkaClient, settings: KafkaSettings, names: list[str], partitions: int) -> set[str]:
    """Make topics; return those that nobody else made first."""
    brokers = len((await client.connect(request_seconds_max)).nodes)
    replicas = settings.replication_factor or min(_MAJORITY_FROM, brokers)
    if (settings.min_insync_replicas or 1) > replicas:
        raise OpeningError(
            f"{settings.min_insync_replicas} replicas cannot be in sync where a topic has {replicas}: lower "
            f"kafka.min_insync_replicas, or raise kafka.replication_factor (there are {brokers} brokers)"
        )
    common = {
        "min.insync.replicas": str(settings.min_insync_replicas or _least_in_sync(replicas)),
        "unclean.leader.election.enable": "false",
        "compression.type": "producer",
    }
    log = {
        "cleanup.policy": "delete",
        "retention.ms": _FOREVER,
        "retention.bytes": _FOREVER,
        "max.message.bytes": str(message_bytes_min),
        "message.timestamp.type": "CreateTime",
        # A clock that is wrong must not keep a batch out.
        "message.timestamp.before.max.ms": _NO_LIMIT_MS,
        "message.timestamp.after.max.ms": _NO_LIMIT_MS,
    }
    wanted: list[Any] = []
    for name in names:
        mine = (partitions, log) if name == settings.log_topic else (1, keys_settings)
        wanted.append((name, mine[0], replicas, [], list({**common, **mine[1]}.items())))
    request = CreateTopicsRequest(wanted, int(request_seconds_max * 1000), validate_only=False)
    answer = await client.ask(request, request_seconds_max, controller=True)
    made: set[str] = set()
    for told in answer.to_object()["topic_errors"]:
        error = codes.for_code(told["error_code"])
        if error is codes.NoError:
            made.add(told["topic"])
        elif error is not codes.TopicAlreadyExistsError:
            why = told.get("error_message") or error.__name__
            raise OpeningError(f"the topic {told['topic']} cannot be made: {why}")
    client.look_again()
    return made


async def _described(client: KafkaClient, names: tuple[str, ...]) -> dict[str, list[list[int]]]:
    """The replicas of each partition, of the topics that are there and whose partitions have leaders."""
    answer = await client.ask(MetadataRequest(list(names), allow_auto_topic_creation=False), request_seconds_max)
    found: dict[str, list[list[int]]] = {}
    for topic in answer.to_object()["topics"]:
        error = codes.for_code(topic["error_code"])
        if error in {codes.TopicAuthorizationFailedError, codes.InvalidTopicError}:
            raise OpeningError(f"the topic {topic['topic']} cannot be used: {error.__name__}")
        if error is codes.NoError:
            found[topic["topic"]] = [each["replicas"] for each in topic["partitions"]]
    return found


async def _appeared(client: KafkaClient, names: tuple[str, ...]) -> dict[str, list[list[int]]]:
    """The same once all are there: a topic that was made is known to the brokers a little later."""
    deadline = asyncio.get_running_loop().time() + appear_seconds_max
    while len(found := await _described(client, names)) < len(names):
        if asyncio.get_running_loop().time() > deadline:
            raise OpeningError(f"the topics {', '.join(names)} were made and are not there")
        await asyncio.sleep(look_again_seconds)
    return found


async def _repeated(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask again while that may help: a new topic is told by one broker before others, its leaders even, know of it."""
    deadline = asyncio.get_running_loop().time() + appear_seconds_max
    while True:
        try:
            return await ask()
        except (NotSent, NotAnswered):
            if asyncio.get_running_loop().time() > deadline:
                raise
        await asyncio.sleep(look_again_seconds)


async def _settings(client: KafkaClient, names: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """The settings of topics as the brokers apply them. Raises `NotAnswered` where a broker does not know one yet."""
    answer = await client.ask(DescribeConfigsRequest([(_TOPIC, name, None) for name in names]), request_seconds_max)
    found: dict[str, dict[str, str]] = {}
    for resource in answer.to_object()["resources"]:
        error = codes.for_code(resource["error_code"])
        name = resource["resource_name"]
        if error is codes.UnknownTopicOrPartitionError:
            # Another broker has told of it: this one has not heard of it yet.
            raise NotAnswered(f"a broker does not know the topic {name}, whose settings are to be checked")
        if error is not codes.NoError:
            why = resource.get("error_message") or error.__name__
            raise OpeningError(f"the settings of topic {name} cannot be read, so they cannot be checked: {why}")
        found[name] = {entry["config_names"]: _text(entry) for entry in resource["config_entries"]}
    return found


def _text(entry: Mapping[str, Any]) -> str:
    return entry["config_value"] or ""
