"""Stories to be interrupted: every kind of command, told by several workers at once, all known from a seed.

Each worker's sessions are its own, so that its commands are answered alike whatever the others do. Nothing in a story
is refused.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Final

from tests.contract.builders import Command, Run, create_session, end_session, place, purge_session

PARTITIONS: Final = 4
WORKERS: Final = 6
SESSIONS: Final = 5
_BYTES: Final = (10, 200, 2_000, 20_000)


def story(seed: int, worker: int, sessions: int = SESSIONS) -> list[Command]:
    """All commands of a worker, in order."""
    return list(_Teller(random.Random(f"{seed}/{worker}"), worker).tell(sessions))


class _Teller:
    def __init__(self, chances: random.Random, worker: int) -> None:
        self._random = chances
        self._worker = worker
        self._numbers = itertools.count()

    def tell(self, sessions: int) -> Iterator[Command]:
        for number in range(sessions):
            yield from self._session(f"w{self._worker}-s{number}")
            if self._random.random() < 0.5:
                yield from self._tree(f"w{self._worker}-t{number}")

    def _session(self, session: str) -> Iterator[Command]:
        yield create_session(session)
        root = Run(self._elsewhere(f"{session}/root", session), session, labels={"worker": str(self._worker)})
        yield root.start()
        for _ in range(self._random.randint(3, 8)):
            match self._random.randrange(6):
                case 0:
                    child = Run(self._elsewhere(f"{session}/child", session), session, parent=root.run_id)
                    yield from (
                        child.start(),
                        self._append(child),
                        child.end(self._random.choice(["completed", "failed"])),
                    )
                case 1:
                    yield root.suspend(data=self._random.randbytes(self._random.choice(_BYTES)))
                    root = Run(f"{root.run_id}+", session, predecessor=root.run_id, labels=root.labels)
                    yield root.start()
                case _:
                    yield self._append(root)
        if self._random.random() < 0.3:
            yield root.cancel("asked for")
            yield root.end("canceled", reason="asked for")
        else:
            yield root.end()
        if self._random.random() < 0.8:
            yield end_session(session)
            if self._random.random() < 0.5:
                yield Run(self._elsewhere(f"{session}/late", session), session).start()
            if self._random.random() < 0.7:
                yield purge_session(session)

    def _tree(self, run_id: str) -> Iterator[Command]:
        root = Run(run_id)
        child = Run(self._elsewhere(f"{run_id}/child", run_id), parent=run_id)
        yield from (
            root.start(),
            child.start(),
            self._append(child),
            child.end("failed"),
            self._append(root),
            root.end(),
        )

    def _append(self, run: Run) -> Command:
        number = next(self._numbers)
        text = self._random.randbytes(self._random.choice(_BYTES) // 2).hex()
        return run.append(f"note/{number}", f'{{"n": {number}, "text": "{text}"}}')

    def _elsewhere(self, name: str, home: str) -> str:
        """Often an ID whose directory entry lies in another partition than its home, so that it is reserved there."""
        numbered = (f"{name}-{number}" for number in self._numbers)
        if self._random.random() < 0.3:
            return next(numbered)
        return next(found for found in numbered if place(found, PARTITIONS) != place(home, PARTITIONS))
