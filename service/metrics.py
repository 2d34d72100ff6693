"""What the service counts, and how Prometheus reads it. Labels are bounded: methods, routes, codes, partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from service.ports import PartitionState, StoreState

CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"
_SECONDS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class Metrics:
    """The counters of one service, in a registry of its own."""

    def __init__(self, in_flight: Callable[[], int]) -> None:
        self._registry = CollectorRegistry()
        self._commands = Counter(
            "runstore_commands",
            "Calls of the store's methods, by how they were answered.",
            ("method", "code"),
            registry=self._registry,
        )
        self._requests = Histogram(
            "runstore_request_seconds",
            "Time from a request's head to the end of its answer.",
            ("route",),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._bugs = Counter(
            "runstore_unexpected_errors", "Requests that met a bug of the service.", registry=self._registry
        )
        Gauge(
            "runstore_requests_in_flight", "Requests that wait for their answer.", registry=self._registry
        ).set_function(in_flight)
        self._stream_events = Counter(
            "runstore_stream_events", "Records sent over streams, once for each reader.", registry=self._registry
        )
        self._streams_dropped = Counter(
            "runstore_stream_readers_dropped", "Readers of streams dropped for not reading.", registry=self._registry
        )
        self._stream_readers = Gauge(
            "runstore_stream_readers", "Readers that streams are being sent to.", registry=self._registry
        )
        ProcessCollector(registry=self._registry)
        self._command_children: dict[tuple[str, str], Counter] = {}
        self._request_children: dict[str, Histogram] = {}

    def command(self, method: str, code: str) -> None:
        """Count one call of a method: `ok`, or the code of its refusal."""
        child = self._command_children.get((method, code))
        if child is None:
            child = self._command_children[method, code] = self._commands.labels(method, code)
        child.inc()

    def request(self, route: str, seconds: float) -> None:
        """Note how long a request took."""
        child = self._request_children.get(route)
        if child is None:
            child = self._request_children[route] = self._requests.labels(route)
        child.observe(seconds)

    def count_readers(self, readers: Callable[[], int]) -> None:
        """Ask this for the number of readers of streams."""
        self._stream_readers.set_function(readers)

    def stream_events(self, count: int) -> None:
        """Count records that are sent to one reader."""
        self._stream_events.inc(count)

    def stream_dropped(self) -> None:
        """Count a reader that was dropped."""
        self._streams_dropped.inc()

    def bug(self) -> None:
        """Count an unexpected error."""
        self._bugs.inc()

    def exposition(self, state: StoreState | None, *, ready: bool) -> bytes:
        """Everything in the text format of Prometheus; `state` is how the store stands now, once it is open."""
        store = CollectorRegistry()
        store.register(_StoreCollector(state, ready=ready))
        return generate_latest(self._registry) + generate_latest(store)


_GAUGES: Final[tuple[tuple[str, str, Callable[[PartitionState], float]], ...]] = (
    ("runstore_partition_log_start", "First position that the log holds.", lambda each: each.log_start),
    ("runstore_partition_log_end", "Position that the log's next record will get.", lambda each: each.log_end),
    ("runstore_partition_applied", "Position up to which the views are applied.", lambda each: each.applied),
    ("runstore_partition_lag", "Records in the log that are not applied.", lambda each: each.lag),
    ("runstore_partition_serving", "1 while the partition serves.", lambda each: float(each.state == "serving")),
    ("runstore_partition_queued", "Commands that wait for their partition.", lambda each: each.queued),
)


class _StoreCollector(Collector):
    """How the store stood when it was asked."""

    def __init__(self, state: StoreState | None, *, ready: bool) -> None:
        self._state = state
        self._ready = ready

    def collect(self) -> Iterator[Metric]:
        """See `Collector`."""
        yield GaugeMetricFamily(
            "runstore_ready", "1 once every partition is applied to the end it had at start.", int(self._ready)
        )
        state = self._state
        if state is None:
            return
        build = GaugeMetricFamily("runstore_build_info", "Always 1.", labels=("version", "log"))
        build.add_metric((state.version, state.log), 1)
        yield build
        for name, text, read in _GAUGES:
            gauge = GaugeMetricFamily(name, text, labels=("partition",))
            for each in state.partitions:
                gauge.add_metric((str(each.partition),), read(each))
            yield gauge
        void = CounterMetricFamily(
            "runstore_partition_void_records", "Records that landed elsewhere and do not count.", labels=("partition",)
        )
        for each in state.partitions:
            void.add_metric((str(each.partition),), each.void_records)
        yield void
        rebuild = GaugeMetricFamily(
            "runstore_partition_rebuild", "Progress of a rebuild, 0 to 1.", labels=("partition",)
        )
        for each in state.partitions:
            if each.rebuild is not None:
                rebuild.add_metric((str(each.partition),), each.rebuild)
        yield rebuild
