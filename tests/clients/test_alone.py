"""The Python reader stands alone: no module of the store, no dependency of the store's, the schemas as published."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Final

from clients.python_reader.records import Content, LogRecord
from schemas import log_record
from tests.packaging.trees import ROOT

READER: Final = ROOT / "clients" / "python_reader"
DEPENDENCIES: Final = {"confluent_kafka", "cryptography", "fastavro", "zstandard"}


def imported(module: Path) -> set[str]:
    """The top-level names that a module imports, relative ones left out."""
    names = set()
    for node in ast.walk(ast.parse(module.read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names.add(node.module.partition(".")[0])
    return names


def test_it_imports_nothing_but_its_four_dependencies() -> None:
    found = {name for module in READER.rglob("*.py") for name in imported(module)}
    assert found - sys.stdlib_module_names == DEPENDENCIES
    declared = tomllib.loads((READER / "pyproject.toml").read_text())["project"]["dependencies"]
    assert {each.partition(">=")[0].replace("-", "_") for each in declared} == DEPENDENCIES


def test_it_runs_where_nothing_else_of_this_repository_is(tmp_path: Path) -> None:
    shutil.copytree(READER, tmp_path / "python_reader", ignore=shutil.ignore_patterns("__pycache__"))
    script = "import sys, python_reader.__main__ as m; print(*sorted(sys.modules)); m.main(['--help'])"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    modules = {name.partition(".")[0] for name in done.stdout.splitlines()[0].split()}
    assert not modules & {"bin", "clients", "engine", "projections", "schemas", "service"}
    assert "--bootstrap" in done.stdout


def test_its_schemas_are_the_published_ones() -> None:
    published = Path(log_record.__file__).parent / "avro"
    ours = {path.name: path.read_bytes() for path in (READER / "avro").iterdir()}
    assert ours == {path.name: path.read_bytes() for path in published.iterdir()}


def test_its_records_have_the_fields_of_the_schemas() -> None:
    for name, record in (("log_record.2.avsc", LogRecord), ("sealed_content.1.avsc", Content)):
        schema = json.loads((READER / "avro" / name).read_text())
        assert [field.name for field in fields(record)] == [field["name"] for field in schema["fields"]]


def test_the_store_does_not_install_what_only_the_reader_needs() -> None:
    assert "confluent-kafka" not in (ROOT / "requirements.lock").read_text()
    assert "confluent-kafka==" in (ROOT / "requirements-dev.lock").read_text()
