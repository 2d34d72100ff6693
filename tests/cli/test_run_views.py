"""Commands that read a run back: what they print, as people read it and as JSON."""

from __future__ import annotations

import json
import signal
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from bin.cli.app import main
from tests.cli.processes import Done, Service, runstore, seconds_max, serving
from tests.contract.builders import Command, Run, compact
from tests.contract.reading import APPENDED, message, prompt, result, said, text

HARD = '{"n":1.10,"big":123456789012345678901234567890,"s":"\\u0000\\ud800 \\u00e9"}'
SESSION = "told/é"
FIRST = f"{SESSION}/run-1"
SECOND = f"{SESSION}/run-2"
EMPTY = Run("empty")
ODD = Run("odd")
Ask = Callable[..., Done]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that holds the demo and two runs of one shot."""
    folder = tmp_path_factory.mktemp("replay")
    with serving(folder, "--partitions", "2") as running:
        assert runstore(folder, "demo", "--session-id", SESSION, RUNSTORE_URL=running.url).status == 0
        for command in story():
            request = urllib.request.Request(  # noqa: S310 - loopback only
                f"{running.url}/v1/store/{command.method}",
                json.dumps(command.args).encode(),
                {"content-type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=seconds_max) as answer:  # noqa: S310 - loopback only
                assert answer.status == 200
        yield running
        assert running.stop(signal.SIGTERM).status == 0


def story() -> Iterator[Command]:
    """One run with nothing to read back, and one with what is hard to show."""
    yield EMPTY.start()
    yield ODD.start()
    yield said(ODD, "1", message("system", text("be\x1b[2J kind\nplease")), message("user", text("")))
    odd = f'[{{"role":"assistant","parts":[{{"kind":"tool_use","id":"u","name":"n","input":{HARD}}}],"meta":{HARD}}}]'
    yield ODD.append("2", odd, APPENDED)
    parts: list[dict[str, Any]] = [
        {"kind": "thinking", "text": "hm", "redacted": "AQID"},
        {"kind": "image", "format": "png", "bytes": "iVA="},
        {"kind": "document", "name": "n", "format": "pdf", "bytes": "AQ=="},
        {"kind": "document", "name": "c", "chunks": ["one", "two"]},
        {"kind": "document", "name": "l", "uri": "s3://x"},
        {"kind": "citations", "text": "cited", "citations": [{"title": "T"}, {"source": "S"}]},
        {"kind": "cache_checkpoint"},
    ]
    yield said(ODD, "3", message("user", result("z"), *parts, {**result("u"), "is_error": True}))
    yield ODD.append("4", "[]", "prompt_rendered")
    yield prompt(ODD, "5", "p", "v\x1b")
    for number, payload in enumerate(
        (
            {"ToolCallID": "open", "ToolName": "t"},
            {"ToolCallID": "bad", "ModelToolCallID": "u", "ToolName": "t"},
        )
    ):
        yield ODD.append(f"6/{number}", compact(payload), "tool_call_scheduled")
    failed = {"tool_call_id": "bad", "tool_name": "t", "failure": {"kind": "x"}}
    yield ODD.append("7", compact(failed), "tool_result_received")
    yield ODD.append("8", "7", "tool_result_received")
    for number in range(2):
        child = Run(f"odd/child/{number}", parent=ODD.run_id)
        yield child.start()
        yield Run(f"odd/grandchild/{number}", parent=child.run_id).start()


@pytest.fixture
def ask(service: Service, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Runs a command in this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RUNSTORE_URL", service.url)
    monkeypatch.setenv("COLUMNS", "100")

    def ask_service(*arguments: str) -> Done:
        status = main(arguments)
        out, err = capsys.readouterr()
        return Done(status, out, err)

    return ask_service


def answer(service: Service, path: str) -> str:
    with urllib.request.urlopen(service.url + path, timeout=seconds_max) as got:  # noqa: S310 - loopback only
        return str(got.read().decode())


@pytest.mark.parametrize("run_id", [FIRST, SECOND, "odd"])
@pytest.mark.parametrize(
    ("command", "view"),
    [("transcript", "transcript"), ("prompts", "prompts"), ("tree", "tree"), ("tools", "tool-calls")],
)
def test_json_is_the_answer_of_the_view_token_by_token(
    service: Service, ask: Ask, run_id: str, command: str, view: str
) -> None:
    done = ask("runs", command, run_id, "--json")
    assert (done.status, done.err) == (0, "")
    stored = answer(service, f"/v1/runs/{quote(run_id, safe='')}/{view}")
    assert json.loads(done.out) == json.loads(stored)
    assert done.out.startswith("{\n  ")


def test_hard_bytes_are_printed_as_they_are_stored(ask: Ask) -> None:
    out = ask("runs", "transcript", "odd", "--json").out
    for piece in ('"n": 1.10,', '"big": 123456789012345678901234567890,', '"s": "\\u0000\\ud800 \\u00e9"'):
        assert out.count(piece) == 2


def test_a_transcript_is_read_message_by_message(ask: Ask) -> None:
    done = ask("runs", "transcript", FIRST)
    assert (done.status, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0].startswith("0  user  000")
    assert lines[0].endswith("  seeded")
    assert lines[1] == "    The kettle from order 1042 leaks. I would like my money back."
    assert lines[3:5] == ["    tool use toolu_01  orders.lookup", '    {"order":1042}']
    assert "planner  valid" in lines
    assert lines[-1].startswith("bedrock  broken at message 1, part 0, toolu_01: ")


def test_every_part_of_a_message_is_told(ask: Ask) -> None:
    lines = ask("runs", "transcript", "odd").out.splitlines()
    assert lines[1:3] == ["    be\\x1b[2J kind", "    please"]
    for line in (
        f"    {HARD}",
        f"    meta {HARD}",
        "    tool result z",
        "    thinking, 3 B redacted",
        "    hm",
        "    image png, 2 B",
        "    document n pdf, 1 B",
        "    document c",
        "    two",
        "    document l",
        "    s3://x",
        "    cites T, S",
        "    cited",
        "    cache checkpoint",
        "    tool result u  is an error",
    ):
        assert line in lines
    assert lines[-2].startswith("planner  broken at message 3, part 0, z: ")


def test_a_transcript_ends_with_a_record(ask: Ask) -> None:
    told = json.loads(ask("runs", "transcript", "odd", "--json").out)["messages"]
    some = json.loads(ask("runs", "transcript", "odd", "--through", told[0]["record_id"], "--json").out)["messages"]
    assert some == told[:2]
    wrong = ask("runs", "transcript", "odd", "--through", "nothing")
    assert (wrong.status, wrong.out) == (1, "")
    assert wrong.err.startswith("runstore: invalid_command: ")


def test_prompts_are_listed(ask: Ask) -> None:
    rows = [line.split()[:3] for line in ask("runs", "prompts", FIRST).out.splitlines()]
    assert rows[0] == ["prompt", "version", "run"]
    assert [row[0] for row in rows[1:]] == ["support.chat.system", "support.policy.system"]
    alone = ask("runs", "prompts", FIRST, "--no-descendants").out.splitlines()
    assert len(alone) == 2
    before = ask("runs", "prompts", SECOND, "--predecessors").out
    assert before.splitlines()[1].split()[2] == FIRST
    odd = ask("runs", "prompts", "odd")
    assert odd.out.splitlines()[1].startswith("p       v\\x1b")
    assert odd.err.startswith("1 record could not be read, and --json shows what they hold:\n  000")
    none = ask("runs", "prompts", "empty")
    assert (none.status, none.out, none.err) == (0, "", "no prompt shaped this run\n")


def test_a_tree_is_drawn(ask: Ask) -> None:
    lines = ask("runs", "tree", "odd").out.splitlines()
    assert lines == [
        "odd  running  agent.chat",
        "├─ odd/child/0  running  agent.chat  research.ask call-1",
        "│  └─ odd/grandchild/0  running  agent.chat  research.ask call-1",
        "└─ odd/child/1  running  agent.chat  research.ask call-1",
        "   └─ odd/grandchild/1  running  agent.chat  research.ask call-1",
    ]
    assert ask("runs", "tree", FIRST).out.startswith(f"continued by  {SECOND}  completed  support.chat\n{FIRST}  ")
    assert ask("runs", "tree", SECOND).out.startswith(f"continues     {FIRST}  suspended  support.chat\n{SECOND}  ")


def test_tool_calls_are_listed_with_both_ids(ask: Ask) -> None:
    rows = [line.split() for line in ask("runs", "tools", FIRST).out.splitlines()[1:]]
    assert (rows[0][0], rows[0][1], rows[0][-1]) == ("call-1", "toolu_01", "done")
    odd = ask("runs", "tools", "odd")
    assert [line.split()[-1] for line in odd.out.splitlines()[1:]] == ["open", "failed"]
    assert "1 record could not be read" in odd.err
    none = ask("runs", "tools", "empty")
    assert (none.status, none.out, none.err) == (0, "", "the run has no tool calls\n")


@pytest.mark.parametrize("command", ["transcript", "prompts", "tree", "tools"])
def test_a_refusal_is_told(ask: Ask, command: str) -> None:
    done = ask("runs", command, "nobody")
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith("runstore: run_not_found: ")
    assert ask("runs", command, "..").status == 2


def test_a_run_without_a_transcript_says_so(ask: Ask) -> None:
    done = ask("runs", "transcript", "empty")
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith("runstore: transcript_not_found: ")
    assert "  next: a run has a transcript once messages are seeded or appended" in done.err
