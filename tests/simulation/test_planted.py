"""Every planted fault fits the product as it is, is there while it is planted, and leaves nothing behind."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.planted import PLANTED, Planted, PlantingError, planted
from tests.simulation.planting import compiled, faulty_codes, find_function

each_fault = pytest.mark.parametrize("fault", PLANTED, ids=[fault.name for fault in PLANTED])

TARGETS = sorted({target for fault in PLANTED for target in fault.changes()})


def test_names_are_unique_and_laws_are_told() -> None:
    assert [name for name, count in Counter(fault.name for fault in PLANTED).items() if count > 1] == []
    assert [fault.name for fault in PLANTED if not fault.law or fault.name != fault.name.lower()] == []
    assert len(PLANTED) >= 60


def test_no_two_faults_are_the_same() -> None:
    changes = Counter(repr(fault.changes()) for fault in PLANTED)
    assert [change for change, count in changes.items() if count > 1] == []


@each_fault
def test_a_fault_is_there_while_it_is_planted_and_gone_after_that(fault: Planted) -> None:
    functions = [find_function(fault.name, target) for target in fault.changes()]
    before = [function.__code__ for function in functions]
    with planted(fault):
        assert all(
            function.__code__.co_code != code.co_code
            or function.__code__.co_consts != code.co_consts
            or function.__code__.co_names != code.co_names
            for function, code in zip(functions, before, strict=True)
        )
    for function, code in zip(functions, before, strict=True):
        assert function.__code__ is code


@each_fault
def test_a_fault_uses_only_names_that_its_module_has(fault: Planted) -> None:
    for function, code in faulty_codes(fault):
        known = function.__globals__.keys() | function.__globals__["__builtins__"].keys()
        own = set(function.__code__.co_names)
        # What the product's own code does not use is a global of the module, or an attribute of something.
        unknown = {name for name in set(code.co_names) - own - known if f".{name}" not in _texts(fault)}
        assert unknown <= {"dataclasses", "replace"}, unknown


def _texts(fault: Planted) -> str:
    return " ".join([fault.new, *(new for _, _, new in fault.also)])


@pytest.mark.parametrize("target", TARGETS)
def test_code_compiled_without_a_change_is_the_functions_own(target: str) -> None:
    function = find_function("no change", target)
    code = compiled(function, [])
    for name in ("co_code", "co_consts", "co_names", "co_varnames", "co_flags", "co_qualname", "co_firstlineno"):
        assert getattr(code, name) == getattr(function.__code__, name), name
    assert list(code.co_lines()) == list(function.__code__.co_lines())


def test_a_planted_fault_is_seen_through_every_name() -> None:
    from schemas.owners import session_owner  # noqa: PLC0415 - a name imported before the fault is planted

    fault = Planted("shared", "", "schemas.owners:session_owner", "session:{session_id}", "session:all")
    with planted(fault):
        assert session_owner("s1") == "session:all"
    assert session_owner("s1") == "session:s1"


def test_a_fault_is_removed_when_its_test_fails() -> None:
    function = find_function("", PLANTED[0].target)
    before = function.__code__
    with pytest.raises(ZeroDivisionError), planted(PLANTED[0]):
        raise ZeroDivisionError
    assert function.__code__ is before


@pytest.mark.parametrize(
    ("target", "old", "why"),
    [
        ("engine.decide.sessions:nothing", "x", "is not there"),
        ("engine.decide.sessions:Session", "x", "no plain function"),
        ("engine.placement:place", "x", "no plain function"),
        ("engine.decide.sessions:end_session", "no such text", "0 times"),
        ("engine.decide.sessions:end_session", "return", "4 times"),
        ("engine.decide.sessions:create_session", "prepared: Prepared", "arguments"),
        ("engine.decide.sessions:end_session", "if row is None:", "unexpected indent"),
    ],
)
def test_a_fault_that_does_not_fit_is_refused_and_changes_nothing(target: str, old: str, why: str) -> None:
    fault = Planted("misfit", "", "engine.decide.sessions:purge_session", "row is None", "row is not None")
    first = find_function("", fault.target)
    before = first.__code__
    misfit = Planted(fault.name, "", fault.target, fault.old, fault.new, ((target, old, "other: int"),))
    with pytest.raises(PlantingError, match=why), planted(misfit):
        pass
    assert first.__code__ is before
