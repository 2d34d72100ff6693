"""The account after a campaign: everything that was answered against the log, the projections, and the stores' answers.

Every acknowledged command is in the log exactly once, at the IDs of its answers, none half. Of two rivals one was done.
What was not answered is there whole or not at all. No record stands before one that was answered before it was asked
for. An exact repetition gets the first answer. All readers, live and new, hold the same.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from tests.kafka.faults.child import DIGESTS, VERIFY
from tests.kafka.faults.ledger import Entry, Ledger, Problems, inserted, record_ids
from tests.kafka.faults.reading import Found, History
from tests.kafka.faults.stores import NoAnswer, Said, StoreProcess

RETRIES_MAX: Final = 10_000
RETRIES_AT_ONCE: Final = 64
_CHANGING: Final = frozenset({"inserted", "session_status"})
question_seconds_max: Final = 15.0


def check_log(ledger: Ledger, history: History) -> None:
    """Compare what was answered with what counts in the log."""
    sessions: dict[str, list[Found]] = defaultdict(list)
    reserved: dict[str, list[Found]] = defaultdict(list)
    for found in history.records:
        if found.kind == "session_created":
            sessions[found.session_id].append(found)
        elif found.kind == "run_reserved":
            reserved[found.run_id].append(found)
    problems = ledger.problems
    for run_id, places in reserved.items():
        problems.expect(len(places) == 1, "doubled", f"reservation of {run_id}: {places}")
    known: set[tuple[str, str]] = set()
    for entry in ledger.entries:
        known.update(entry.records)
        if entry.command.method == "create_session":
            places = sessions[entry.command.args["session_id"]]
            problems.expect(len(places) <= 1, "doubled", f"{entry.command}: {places}")
            problems.expect(bool(places) or not entry.answers, "lost", f"{entry.command}")
        else:
            _check_entry(entry, [history.by_name.get(name, []) for name in entry.records], problems)
    for name, places in history.by_name.items():
        problems.expect(name in known, "unasked", f"{name}: {places}")
    _check_order(ledger, history)


def _check_entry(entry: Entry, places: Sequence[Sequence[Found]], problems: Problems) -> None:
    what = f"{entry.command.method} {entry.records}"
    for found in places:
        problems.expect(len(found) <= 1, "doubled", f"{what}: {found}")
    there = [bool(found) for found in places]
    commands = {found[0].command_id for found in places if found}
    problems.expect(len(set(there)) == 1 and len(commands) <= 1, "half", f"{what}: {places}")
    if entry.rival is None:
        problems.expect(not entry.refusals, "refused", f"{what}: {[said.detail for said in entry.refusals]}")
    else:
        both = bool(entry.answers) and bool(entry.rival.answers)
        problems.expect(not both, "split", f"both were done: {what}, {entry.rival.records}")
        problems.expect(not (entry.answers and entry.refusals), "split", f"{what}: done, and refused")
        problems.expect(not (entry.refusals and there[0]), "split", f"{what}: refused, and in the log: {places}")
        if entry.refusals and entry.rival.refusals:
            problems.add("split", f"each was told that the other one was done: {what}")
    if not entry.answers:
        return
    expected = [found[0].id for found in places if found]
    for said in entry.answers:
        ids = record_ids(entry.command, said)
        if not all(there):
            problems.add("lost", f"{what}: {said.store} answered {ids}")
        else:
            problems.expect(ids == expected, "wrong answers", f"{what}: {said.store} {ids}; in the log {expected}")
    told = sum(inserted(said) for said in entry.answers)
    problems.expect(told <= 1, "doubled", f"{what}: {told} callers were told that theirs was the one inserted")
    if len(entry.answers) == entry.attempts:
        problems.expect(told == 1, "wrong answers", f"{what}: nobody was told that it was inserted")


def _check_order(ledger: Ledger, history: History) -> None:
    """A command that was answered before another was asked for stands before it, in every partition."""
    ordered: dict[int, list[tuple[int, Entry]]] = defaultdict(list)
    for entry in ledger.entries:
        for name in entry.records:
            for found in history.by_name.get(name, [])[:1]:
                ordered[found.partition].append((found.offset, entry))
    for partition, placed in ordered.items():
        latest = -math.inf
        for offset, entry in sorted(placed, key=lambda each: each[0]):
            if entry.acknowledged_at < latest:
                ledger.problems.add("disordered", f"partition {partition}, {offset}: {entry.records}")
            latest = max(latest, entry.asked_at)


async def check_repeats(ledger: Ledger, stores: Sequence[StoreProcess], seed: int) -> int:
    """Repeat commands at any store, those first that were asked for more than once; give their number."""
    chances = random.Random(f"{seed}/repeats")
    entries = [entry for entry in ledger.entries if entry.answers or entry.refusals]
    chances.shuffle(entries)
    chosen = sorted(entries, key=lambda entry: -entry.attempts)[:RETRIES_MAX]
    waiting = iter(chosen)

    async def repeat() -> None:
        for entry in waiting:
            await _repeat(entry, chances.choice(stores), ledger.problems)

    await asyncio.gather(*(repeat() for _ in range(RETRIES_AT_ONCE)))
    return len(chosen)


async def _repeat(entry: Entry, store: StoreProcess, problems: Problems) -> None:
    method, args = entry.command
    deadline = asyncio.get_running_loop().time() + question_seconds_max
    while (said := await _asked(store, method, args)).code == "unavailable":
        if asyncio.get_running_loop().time() > deadline:
            break
        await asyncio.sleep(0.05)
    what = f"the repetition of {method} {entry.records} by {store.name}"
    if not entry.answers:
        problems.expect(
            said.code == entry.refusals[0].code,
            "wrong repeats",
            f"{what}: {said.code}, and first {entry.refusals[0].code}",
        )
        return
    first = _lasting(entry.answers[0].answer)
    same = said.answer is not None and _lasting(said.answer) == first
    problems.expect(same, "wrong repeats", f"{what}: {said.answer or said.code}, and first {first}")
    if said.answer is not None and entry.records:
        problems.expect(not inserted(said), "doubled", f"{what} was inserted")


async def _asked(store: StoreProcess, method: str, args: dict[str, Any]) -> Said:
    try:
        return await store.ask(method, args, question_seconds_max)
    except NoAnswer as error:
        return Said(store.name, 0, 0, None, "unavailable", str(error))


def _lasting(value: Any) -> Any:
    """An answer without what may change from one asking to the next."""
    if isinstance(value, dict):
        return {name: _lasting(item) for name, item in value.items() if name not in _CHANGING}
    return value


async def check_projections(
    ledger: Ledger, live: Sequence[StoreProcess], rebuilt: StoreProcess, partitions: int
) -> int:
    """Compare the digests of all projections, have one store verify its own; give how many were compared."""
    problems = ledger.problems
    digests: dict[str, dict[str, Any] | None] = {}
    for store in (*live, rebuilt):
        said = await _asked(store, DIGESTS, {})
        digests[store.name] = said.answer
        problems.expect(said.answer is not None, "broken", f"{store.name} tells no digests: {said.code} {said.detail}")
    for name, found in digests.items():
        problems.expect(
            found is None or found == digests[rebuilt.name], "different", f"{name} {found}, rebuilt {digests}"
        )
    verified = await _asked(live[0], VERIFY, {})
    problems.expect(verified.answer == {}, "different", f"{live[0].name} verifies: {verified.answer} {verified.detail}")
    return len(digests) * partitions


async def check_contents(ledger: Ledger, store: StoreProcess) -> int:
    """Read every run of which something was answered, from one store; give how many records were compared."""
    expected: dict[str, dict[str, tuple[str, str]]] = defaultdict(dict)
    for entry in ledger.entries:
        if entry.answers and entry.records:
            ids = record_ids(entry.command, entry.answers[0])
            parts = [
                entry.command.args[name]
                for name in ("parent_linked", "started", "record")
                if name in entry.command.args
            ]
            for record_id, record in zip(ids, parts, strict=True):
                expected[record["run_id"]][record["event_key"]] = record_id, record["payload"]
    count = 0
    for run_id, records in expected.items():
        said = await _asked(store, "list_run_records", {"run_id": run_id, "cursor": "", "limit": 1000})
        told = said.answer["records"] if said.answer is not None else []
        found = {each["event_key"]: (each["id"], each["payload"]) for each in told}
        for key, value in records.items():
            count += 1
            ledger.problems.expect(found.get(key) == value, "lost", f"{store.name}: {run_id} {key}: {found.get(key)}")
    return count
