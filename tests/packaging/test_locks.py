"""The lock files: everything pinned and hashed, nothing that points at a machine, one version of each package."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any, Final

import pytest

from bin.cli import VERSION
from tests.packaging.trees import ROOT

LOCKS: Final = ("requirements.lock", "requirements-dev.lock", "bench/requirements.lock")
REQUIREMENT: Final = re.compile(r"([a-z0-9-]+)==([\w.]+)(?: ; [^\\]+)?((?: \\\n    --hash=sha256:[0-9a-f]{64})+)\n")
ANNOTATION: Final = re.compile(r"    # .*\n")


def project() -> dict[str, Any]:
    """Read pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def pins(name: str) -> dict[str, str]:
    """Give the version of each package in a lock file."""
    return {match[1]: match[2] for match in REQUIREMENT.finditer((ROOT / name).read_text())}


def names(requirements: list[str]) -> set[str]:
    """Give the names of packages from requirements such as `a>=1; marker`."""
    return {re.split(r"[^\w-]", requirement)[0] for requirement in requirements}


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_holds_pins_and_hashes_and_nothing_else(name: str) -> None:
    text = (ROOT / name).read_text()
    assert REQUIREMENT.search(text)
    rest = ANNOTATION.sub("", REQUIREMENT.sub("", text))
    assert rest == ""
    assert "://" not in text
    assert not re.search(r"(?:^|\s)/\w", text)


def imported(folder: Path) -> Iterator[str]:
    """Give the top-level names that the modules below a folder import."""
    for module in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(module.read_bytes())):
            if isinstance(node, ast.Import):
                yield from (alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module.partition(".")[0]


def test_what_the_product_imports_is_a_dependency_of_its_own() -> None:
    # What is in clients/ is installed by itself, with its own dependencies.
    packages = set(project()["tool"]["importlinter"]["root_packages"]) - {"clients"}
    found = {name for package in packages for name in imported(ROOT / package)}
    distributions = packages_distributions()
    foreign = {
        distribution.lower().replace("_", "-")
        for name in found - packages - sys.stdlib_module_names
        for distribution in distributions.get(name, [f"{name}, which is not installed"])
    }
    assert foreign - names(project()["project"]["dependencies"]) == set()


def test_every_dependency_is_locked() -> None:
    assert names(project()["project"]["dependencies"]) <= pins("requirements.lock").keys()
    assert names(project()["dependency-groups"]["dev"]) <= pins("requirements-dev.lock").keys()


def test_tests_and_benchmarks_run_on_the_versions_that_are_shipped() -> None:
    shipped, tested, measured = map(pins, LOCKS)
    assert shipped.items() <= tested.items()
    assert {name: tested.get(name, version) for name, version in measured.items()} == measured


def test_the_version_is_said_once_in_each_place() -> None:
    assert project()["project"]["version"] == VERSION
