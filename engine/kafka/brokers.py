"""The brokers of a cluster as one client sees them: who leads which partition, and who does not answer.

Basics
  A broker that did not answer in time, or cannot be reached, is **silent** until it has answered again; a partition may
  have no leader. While anything is so, one task looks again and again, with waits that grow to `wait_seconds_max`.
  A request waits up to `patience_seconds` for that to pass. What has lasted longer is not waited for: the request fails
  at once, until the task has found that it passed.

Caveats
  Brokers may make a topic that is asked for and is not there, with settings of their own, unless they are told not to:
  every question for the layout says so.
  A broker that is woken tells, for a moment, a layout that is no more true. Its errors have the layout looked up again.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from aiokafka import errors as codes
from aiokafka.protocol.metadata import MetadataRequest

from engine.kafka.connections import Address, Link, addresses
from engine.kafka.errors import CannotConnect, KafkaFailed, NotAnswered, NotReached, NotSent
from engine.kafka.settings import KafkaSettings

log = logging.getLogger("runstore.kafka")

patience_seconds: Final = 1.0
look_up_seconds_max: Final = 1.0
wait_seconds_first: Final = 0.02
wait_seconds_max: Final = 0.5
asked_at_once_max: Final = 8
_LAYOUT_LANE: Final = "layout"


@dataclass(frozen=True, slots=True)
class Layout:
    """What the brokers tell: addresses by node, leaders by topic and partition, and how many partitions a topic has."""

    nodes: dict[int, Address] = field(default_factory=dict)
    leaders: dict[tuple[str, int], int] = field(default_factory=dict)
    partitions: dict[str, int] = field(default_factory=dict)
    controller: int = -1


@dataclass(frozen=True, slots=True)
class _Trouble:
    """What stands in the way of a request, and since when, by the loop's clock."""

    why: str
    since: float


class Brokers:
    """The links to all brokers, made when they are needed. Belongs to one event loop."""

    def __init__(self, settings: KafkaSettings, topics: Iterable[str]) -> None:
        self._settings = settings
        self._topics = sorted(topics)
        self._links: dict[tuple[Address, str], Link] = {}
        self.layout = Layout()
        self._unknown: _Trouble | None = None
        self._cannot: CannotConnect | None = None
        self._silent: dict[int, _Trouble] = {}
        self._leaderless: dict[tuple[str, int], _Trouble] = {}
        self._changed = asyncio.Event()
        self._doubted = True
        self._watching: asyncio.Task[None] | None = None
        self._asking: dict[Address, asyncio.Task[Layout | None]] = {}
        self._closed = False

    async def connect(self, deadline: float) -> Layout:
        """Have the layout. Raises `NotReached` when no broker has told it in time, or `CannotConnect` at once."""
        while not self.layout.nodes:
            if self._closed:
                raise NotReached("the connection to Kafka is closed")
            if self._cannot is not None:
                raise self._cannot
            self._watch()
            if not await self._change(deadline):
                why = self._unknown.why if self._unknown is not None else "none has answered in time"
                raise NotReached(f"no broker of {self._settings.bootstrap_servers} can be reached: {why}")
        return self.layout

    async def ask_leader(self, topic: str, partition: int, request: Any, deadline: float, lane: str) -> Any:
        """Send a request to the leader of a partition. Raises `NotSent`, `NotAnswered` or `CannotConnect`."""
        node, link = await self._leader(topic, partition, deadline, lane)
        return await self._ask(node, link, request, deadline)

    async def ask_any(self, request: Any, deadline: float, *, controller: bool = False) -> Any:
        """Send a request to a broker that answers; the one that is told to control, where that is asked for."""
        layout = await self.connect(deadline)
        nodes = [node for node in layout.nodes if node not in self._silent] or list(layout.nodes)
        node = layout.controller if controller and layout.controller in nodes else random.choice(nodes)  # noqa: S311 # any
        link = self._link(layout.nodes[node], _LAYOUT_LANE)
        await link.open(deadline)
        return await self._ask(node, link, request, deadline)

    def doubt(self) -> None:
        """Have the layout looked up: what a broker said does not fit it."""
        self._doubted = True
        self._watch()

    async def close(self) -> None:
        """Drop all links. Safe to repeat."""
        self._closed = True
        running: list[asyncio.Task[Any]] = list(self._asking.values())
        if self._watching is not None:
            running.append(self._watching)
        for task in running:
            task.cancel()
        for link in self._links.values():
            link.cut()
        self._links.clear()
        self._tell()
        if running:
            await asyncio.wait(running)
        await asyncio.sleep(0)  # The transports tell that they have gone.

    # -- leaders

    async def _leader(self, topic: str, partition: int, deadline: float, lane: str) -> tuple[int, Link]:
        while True:
            await self.connect(min(deadline, self._patience_ends(self._unknown)))
            trouble = self._leaderless.get((topic, partition))
            node = self.layout.leaders.get((topic, partition), -1)
            if trouble is None and node < 0:
                trouble = self._leaderless[topic, partition] = _Trouble(f"{topic}/{partition} is not known", _now())
            trouble = self._silent.get(node) or trouble
            if trouble is None:
                link = self._link(self.layout.nodes[node], lane)
                try:
                    await link.open(deadline)
                except (NotSent, CannotConnect) as error:
                    trouble = self._silence(node, str(error))
                else:
                    return node, link
            self._watch()
            if not await self._change(min(deadline, self._patience_ends(trouble))):
                raise NotReached(f"{topic}/{partition}: {trouble.why}")

    def _patience_ends(self, trouble: _Trouble | None) -> float:
        return (_now() if trouble is None else trouble.since) + patience_seconds

    async def _ask(self, node: int, link: Link, request: Any, deadline: float) -> Any:
        try:
            return await link.ask(request, deadline)
        except NotAnswered as error:
            self._silence(node, str(error))
            raise

    def _link(self, address: Address, lane: str) -> Link:
        link = self._links.get((address, lane))
        if link is None:
            link = self._links[address, lane] = Link(address, self._settings)
        return link

    def _silence(self, node: int, why: str) -> _Trouble:
        """Note that a broker does not answer, and find out when it does."""
        trouble = self._silent.get(node)
        if trouble is None:
            trouble = self._silent[node] = _Trouble(why, _now())
        self._watch()
        return trouble

    # -- what has changed

    async def _change(self, deadline: float) -> bool:
        """Wait until something has changed; False at the deadline."""
        changed = self._changed
        try:
            async with asyncio.timeout_at(deadline):
                await changed.wait()
        except TimeoutError:
            return False
        return not self._closed

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # -- looking again

    def _watch(self) -> None:
        if self._watching is None and not self._closed:
            self._watching = asyncio.create_task(self._keep_looking())
            self._watching.add_done_callback(self._watched)

    def _watched(self, watching: asyncio.Task[None]) -> None:
        self._watching = None
        if not watching.cancelled() and (error := watching.exception()) is not None:
            log.error("looking for the brokers failed", exc_info=error)

    async def _keep_looking(self) -> None:
        wait = wait_seconds_first
        while self._doubted or self._silent or self._leaderless or not self.layout.nodes:
            self._doubted = False
            await self._look_up()
            if self._silent or self._leaderless or not self.layout.nodes:
                await asyncio.sleep(wait)
                wait = min(2 * wait, wait_seconds_max)

    async def _look_up(self) -> None:
        """Ask several brokers, and take the first layout that comes."""
        self._cannot = None
        try:
            targets = self._targets()
        except CannotConnect as error:
            self._cannot = error
            self._tell()
            return
        for address in targets:
            if address not in self._asking:
                self._asking[address] = asyncio.create_task(self._ask_layout(address))
        waiting = {self._asking[address] for address in targets}
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            found = [layout for task in done if (layout := task.result()) is not None]
            if found:
                self._take(found[0])
                return
        self._tell()

    def _targets(self) -> Sequence[Address]:
        """The silent ones, to hear when they answer, and some others; the first addresses where none answers."""
        nodes = self.layout.nodes
        silent = [nodes[node] for node in self._silent if node in nodes]
        others = [address for node, address in nodes.items() if node not in self._silent]
        if not others:
            others = addresses(self._settings.bootstrap_servers)
        random.shuffle(others)
        return list(dict.fromkeys((*silent[:asked_at_once_max], *others[:2])))

    async def _ask_layout(self, address: Address) -> Layout | None:
        """One broker's layout; None when it does not tell."""
        deadline = _now() + look_up_seconds_max
        link = self._link(address, _LAYOUT_LANE)
        try:
            await link.open(deadline)
            answer = await link.ask(MetadataRequest(self._topics, allow_auto_topic_creation=False), deadline)
        except KafkaFailed as error:
            if isinstance(error, CannotConnect):
                self._cannot = error
            if not self.layout.nodes:
                since = self._unknown.since if self._unknown is not None else _now()
                self._unknown = _Trouble(self._hinted(error), since)
            return None
        finally:
            del self._asking[address]
        heard = [node for node in self._silent if self.layout.nodes.get(node) == address]
        for node in heard:
            del self._silent[node]
        if heard:
            self._tell()
        return _layout(answer)

    def _hinted(self, error: KafkaFailed) -> str:
        """The error; where a broker hung up that never answered, with what may be the reason."""
        protocol = self._settings.security.protocol
        hint = f"; it was spoken to by {protocol}, and may demand another protocol, a password or a certificate"
        return f"{error}{hint if error.hung_up else ''}"

    def _take(self, layout: Layout) -> None:
        if not layout.nodes:
            self._tell()
            return
        before, self.layout = self.layout, layout
        self._unknown = self._cannot = None
        for node in list(self._silent):
            if node not in layout.nodes or layout.nodes[node] != before.nodes.get(node):
                del self._silent[node]
        for place in list(self._leaderless):
            if layout.leaders.get(place, -1) in layout.nodes:
                del self._leaderless[place]
        for place, node in layout.leaders.items():
            if node not in layout.nodes and place not in self._leaderless:
                topic, partition = place
                self._leaderless[place] = _Trouble(f"{topic}/{partition} has no leader", _now())
        self._drop_links(set(layout.nodes.values()))
        self._tell()

    def _drop_links(self, wanted: set[Address]) -> None:
        for (address, lane), link in list(self._links.items()):
            if address not in wanted and address not in self._asking:
                del self._links[address, lane]
                link.cut()


def _layout(answer: Any) -> Layout:
    told = answer.to_object()
    leaders: dict[tuple[str, int], int] = {}
    partitions: dict[str, int] = {}
    for topic in told["topics"]:
        if codes.for_code(topic["error_code"]) is not codes.NoError:
            continue
        partitions[topic["topic"]] = len(topic["partitions"])
        for partition in topic["partitions"]:
            leaders[topic["topic"], partition["partition"]] = partition["leader"]
    nodes = {node["node_id"]: (node["host"], node["port"]) for node in told["brokers"]}
    return Layout(nodes, leaders, partitions, told["controller_id"])


def _now() -> float:
    return asyncio.get_running_loop().time()
