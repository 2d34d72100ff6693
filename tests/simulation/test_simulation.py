"""A part of the simulation that fits a test run: other seeds each day, one hash for the same seeds, faults caught."""

from __future__ import annotations

import datetime
import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulation.__main__ import main
from tests.simulation.campaign import catch, run
from tests.simulation.planted import PLANTED
from tests.simulation.planting import planted
from tests.simulation.simulation import simulate

# Whatever was asleep or dead at the end of a story is dropped where it stands, and its coroutines with it.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

ROOT = Path(__file__).parents[2]
SEEDS_A_DAY = 1000
PARTS = 5
FAULTS = {fault.name: fault for fault in PLANTED}


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Collect what the stories of a test left, before another test is blamed for it."""
    yield
    gc.collect()


def todays_first_seed() -> int:
    """Each day has seeds of its own; RUNSTORE_SIMULATION_START repeats those of another."""
    today = datetime.datetime.now(datetime.UTC).date().toordinal() * SEEDS_A_DAY
    return int(os.environ.get("RUNSTORE_SIMULATION_START", today))


@pytest.mark.parametrize("part", range(PARTS))
def test_todays_seeds(part: int) -> None:
    first = todays_first_seed() + part * SEEDS_A_DAY // PARTS
    failed = [
        f"bin/simulate --seed {outcome.seed} --trace: {outcome.failure}"
        for outcome in map(simulate, range(first, first + SEEDS_A_DAY // PARTS))
        if outcome.failure
    ]
    assert not failed


def last_line(hash_seed: str, *arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()[-1].split(", ")


def test_the_same_seeds_give_the_same_hash_in_any_process_and_on_any_number_of_cores() -> None:
    one = last_line("1", "--seeds", "42", "--jobs", "1")
    two = last_line("2", "--seeds", "42", "--jobs", "2")
    assert one[0] == "42 seeds"
    assert [part for part in one if "seconds" not in part] == [part for part in two if "seconds" not in part]
    assert len(one[-1].removeprefix("traces ")) == 64
    assert last_line("1", "--seeds", "42", "--start", "1", "--jobs", "1")[-1] != one[-1]


def test_a_seed_that_fails_is_said_and_fails_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with planted(FAULTS["start-retry-tells-the-current-status"]):
        assert run(0, 40, jobs=1) == 1
    said = capsys.readouterr().out
    assert "bin/simulate --seed" in said
    assert ", 0 failures" not in said
    assert run(0, 1, jobs=1) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("", "how many --seeds"),
        ("--seeds 0", "must be 1 or more"),
        ("--seeds -5", "must be 1 or more"),
        ("--seeds 2 --jobs 0", "must be 1 or more"),
        ("--seeds 2 --minutes nan", "must be more than 0"),
        ("--seeds 2 --trace", "say which --seed"),
        ("--seeds 2 --only void", "go with --mutants"),
        ("--seed 17 --seeds 3", "do not go with it"),
        ("--mutants --only nosuchthing", "no planted fault has 'nosuchthing' in its name"),
        ("--mutants --seed 3", "the name of one fault"),
        ("--mutants --minutes 3", "does not go with --mutants"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    arguments: str, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["bin/simulate", *arguments.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_a_trace_tells_a_story_and_a_planted_fault_can_be_traced(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "start-retry-tells-the-current-status"
    caught = catch(FAULTS[name], range(2000))
    assert caught is not None
    planted_seed = ["--mutants", "--only", name, "--seed", str(caught[0]), "--trace"]
    monkeypatch.setattr(sys, "argv", ["bin/simulate", *planted_seed])
    assert main() == 1
    *lines, last = capsys.readouterr().out.splitlines()
    assert last.startswith("1 seed, ")
    assert ", 1 failure, " in last
    for word in (" scenario seed ", " call 0 to p", " answer 0: ", " landed partition "):
        assert any(word in line for line in lines), word


@pytest.mark.parametrize("name", sorted(FAULTS)[::5])
def test_a_planted_fault_is_caught(name: str) -> None:
    assert catch(FAULTS[name], range(2000)) is not None
