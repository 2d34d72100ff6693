"""`runstore status` as an operator of a log on Kafka reads it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bin.cli.app import main
from service import render
from service.ports import KafkaPlace
from tests.cli.processes import answering
from tests.service.fake import FakePartition, FakeState

UNREACHABLE = "no broker of a:1,b:2 has answered within 2.0 s"


def test_a_log_on_kafka_is_told_with_its_place_and_what_went_wrong_last(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    partitions = (FakePartition(), FakePartition(1, last_error=f"partition 1: {UNREACHABLE}"))
    place = KafkaPlace("a:1,b:2", "p.log", "p.keys")
    state = render.store_state(FakeState(log="kafka", partitions=partitions), place, ready=True)
    with answering(state) as there:
        assert main(["status", "--url", f"http://{there}"]) == 0
        out = capsys.readouterr().out
        assert main(["status", "--json", "--url", f"http://{there}"]) == 0
        told = json.loads(capsys.readouterr().out)
    assert "log      kafka: topic p.log at a:1,b:2\n" in out
    assert out.endswith(f"\npartition 1 is serving: {UNREACHABLE}\n")
    assert "partition 0 is" not in out
    assert told["kafka"] == {"bootstrap_servers": "a:1,b:2", "log_topic": "p.log", "keys_topic": "p.keys"}
