"""What people see: escaped, aligned, and a bar only on a terminal."""

from __future__ import annotations

import io

import pytest

from bin.cli import output


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_a_terminal_would_obey_is_escaped() -> None:
    assert output.plain("a\x1b[2J\nb\u202ec é") == r"a\x1b[2J\nb\u202ec é"
    assert output.plain("日本") == "日本"


def test_a_table_is_aligned_by_what_is_seen(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("日本", "active", "1"), ("e\u0301", "ended", "12"), ("a\tb", "", "123")]
    output.print_table(("session", "status", "runs"), rows, numbers=("runs",))
    assert capsys.readouterr().out.splitlines() == [
        "session  status  runs",
        "日本     active     1",
        "e\u0301        ended     12",
        "a\\tb              123",
    ]


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        (28, ["a    event key      size", "one  s%2Frun-1/12      3", "two  runtime/start     4"]),
        (21, ["a    event key   size", "one  …Frun-1/12     3", "two  …ime/start     4"]),
        (18, ["a    size", "one     3", "two     4"]),
    ],
)
def test_a_table_that_is_too_wide_gives_up_one_column(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int, told: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    rows = [("one", "s%2Frun-1/12", "3"), ("two", "runtime/start", "4")]
    output.print_table(("a", "event key", "size"), rows, numbers=("size",), narrow="event key")
    assert capsys.readouterr().out.splitlines() == told


def test_wrapped_text_is_whole_and_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "24")
    for text in ('{"a": [1,2,3], "long": "' + "x" * 50 + '"}', "日本語 " * 9, "", "a b\x1bc"):
        lines = list(output.wrapped(text, "    "))
        assert "".join(line.removeprefix("    ") for line in lines) == output.plain(text)
        assert all(output._width(line) <= 24 and line.startswith("    ") for line in lines)
    assert list(output.wrapped("one, two, three, four, five")) == ["one, two, three, four, ", "five"]
    assert list(output.wrapped("{\r\n\t1\r\n}")) == ["{", "    1", "}"]


def test_facts_without_a_value_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_facts([("run", "r"), ("parent", ""), ("labels", "k=\x1b")])
    assert capsys.readouterr().out == "run     r\nlabels  k=\\x1b\n"


@pytest.mark.parametrize(
    ("count", "told"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (4 * 1024 * 1024, "4.0 MiB")],
)
def test_sizes(count: int, told: str) -> None:
    assert output.size(count) == told


def test_a_terminal_gets_a_bar_that_goes_away() -> None:
    stream = Terminal()
    progress = output.Progress("rebuild", stream=stream)
    progress.show(0.5, "partition 1 of 2")
    progress.show(0.5, "partition 1 of 2")
    progress.step("not for a terminal")
    progress.clear()
    progress.clear()
    bar = "#" * 15 + "-" * 15
    assert stream.getvalue() == f"\r\x1b[Krebuild [{bar}]  50%  partition 1 of 2\r\x1b[K"


def test_anything_else_gets_lines() -> None:
    stream = io.StringIO()
    progress = output.Progress("rebuild", stream=stream)
    progress.show(0.5, "partition 1 of 2")
    progress.step("partition 0 of 2 done")
    progress.clear()
    assert stream.getvalue() == "rebuild: partition 0 of 2 done\n"
