"""Planting a fault: one function of the product gets code with a slip in it for a while, and its own back after that.

The code is replaced inside the function object, so that every name that leads to the function sees the fault, wherever
it was imported. Coroutines that are running already go on in the code they began with.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

Change = tuple[str, str]
"""The old text and the new one."""


@dataclass(frozen=True, slots=True)
class Planted:
    """A fault: in the source of `target`, with no indentation before its `def`, `old` becomes `new`.

    `target` is a module, a colon and the qualified name of a function. `also` holds further targets, old and new texts.
    """

    name: str
    law: str
    target: str
    old: str
    new: str
    also: tuple[tuple[str, str, str], ...] = ()

    def changes(self) -> dict[str, list[Change]]:
        """The changes by target."""
        found: dict[str, list[Change]] = {}
        for target, old, new in ((self.target, self.old, self.new), *self.also):
            found.setdefault(target, []).append((old, new))
        return found


class PlantingError(Exception):
    """A fault that does not fit the product as it is; the message names it, its target, and why."""


@contextmanager
def planted(fault: Planted) -> Iterator[None]:
    """Have the fault in the product meanwhile. Raises `PlantingError` before anything is changed."""
    codes = faulty_codes(fault)
    own = [(function, function.__code__) for function, _ in codes]
    try:
        for function, code in codes:
            function.__code__ = code
        yield
    finally:
        for function, code in own:
            function.__code__ = code


def faulty_codes(fault: Planted) -> list[tuple[FunctionType, CodeType]]:
    """Each function that a fault changes, and the code it gets."""
    codes: list[tuple[FunctionType, CodeType]] = []
    for target, changes in fault.changes().items():
        function = find_function(fault.name, target)
        try:
            codes.append((function, compiled(function, changes)))
        except (ValueError, SyntaxError) as error:
            raise PlantingError(f"{fault.name}: {target}: " + str(error)) from error
    return codes


def find_function(name: str, target: str) -> FunctionType:
    """The function that a target names, behind a property, a static method or a class method too."""
    module, _, path = target.partition(":")
    found: Any = importlib.import_module(module)
    try:
        for part in path.split("."):
            found = inspect.getattr_static(found, part)
    except AttributeError as error:
        raise PlantingError(f"{name}: {target}: " + "it is not there") from error
    if isinstance(found, property):
        found = found.fget
    elif isinstance(found, staticmethod | classmethod):
        found = found.__func__
    if not isinstance(found, FunctionType) or hasattr(found, "__wrapped__"):
        raise PlantingError(f"{name}: {target}: " + "it is no plain function")
    return found


def compiled(function: FunctionType, changes: Sequence[Change]) -> CodeType:
    """The function's code after some changes of its source. Raises `ValueError` where that cannot take its place.

    The whole module is compiled with them, so that everything else about the code is as it was.
    """
    lines, first_line = inspect.getsourcelines(function)
    own = textwrap.dedent("".join(lines))
    changed = _changed(own, changes)
    if _arguments(changed) != _arguments(own):
        raise ValueError("the arguments and their defaults must stay as they are")
    indentation = lines[0][: len(lines[0]) - len(lines[0].lstrip())]
    path = function.__code__.co_filename
    module = Path(path).read_text(encoding="utf-8").splitlines(keepends=True)
    module[first_line - 1 : first_line - 1 + len(lines)] = [textwrap.indent(changed, indentation)]
    code = _find(compile("".join(module), path, "exec", dont_inherit=True), function.__code__)
    if code is None or code.co_freevars != function.__code__.co_freevars:
        raise ValueError("it could not see the same names around it")
    return code


def _find(code: CodeType, wanted: CodeType) -> CodeType | None:
    """The code, somewhere in this one, that stands where the wanted one does."""
    for each in code.co_consts:
        if isinstance(each, CodeType):
            if (each.co_qualname, each.co_firstlineno) == (wanted.co_qualname, wanted.co_firstlineno):
                return each
            if (found := _find(each, wanted)) is not None:
                return found
    return None


def _changed(source: str, changes: Sequence[Change]) -> str:
    """The source with each old text, which must stand there exactly once, replaced by its new one."""
    for old, _ in changes:
        if (count := source.count(old)) != 1:
            raise ValueError(f"this text stands there {count} times, not once: {old!r}")
    places = sorted(((source.index(old), len(old), new) for old, new in changes), reverse=True)
    after = len(source)
    for start, length, new in places:
        if start + length > after:
            raise ValueError("two of the old texts overlap")
        source, after = source[:start] + new + source[start + length :], start
    return source


def _arguments(source: str) -> str:
    function = ast.parse(source).body[0]
    assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
    return ast.dump(function.args)
