"""The table of sentences in `README.md` names every test of the suite, and none that is not there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

FOLDER = Path(__file__).parent
ROW = re.compile(r"\| (?P<sentence>.+) \| (?P<tests>[^|]+) \|")
NAMED = re.compile(r"`(test_\w+\.py)::(test_\w+)`")


def rows() -> list[tuple[str, str]]:
    """Every row of the tables of sentences: the sentence, and the cell of its tests."""
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    chapters = text.split("\n## ")[1:]
    found = [ROW.fullmatch(line) for chapter in chapters for line in chapter.splitlines() if line.startswith("| ")]
    assert all(found)
    return [(row["sentence"], row["tests"]) for row in found if row and row["sentence"] != "sentence"]


def existing() -> set[tuple[str, str]]:
    """Every test of the suite, by file and name; this file's own aside."""
    found = set()
    for path in FOLDER.glob("test_*.py"):
        if path.name != Path(__file__).name:
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef) and node.name.startswith("test_"):
                    found.add((path.name, node.name))
    return found


def test_every_sentence_has_tests_that_exist_or_says_later() -> None:
    table = rows()
    there = existing()
    assert len(table) > 150
    for sentence, tests in table:
        named = set(NAMED.findall(tests))
        assert named or tests == "*later*", sentence
        assert named <= there, sentence


def test_every_test_belongs_to_a_sentence() -> None:
    named = {each for _, tests in rows() for each in NAMED.findall(tests)}
    assert existing() - named == set()
