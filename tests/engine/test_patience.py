"""How long a caller waits: as `asyncio.timeout` has it, with one timer for all."""

from __future__ import annotations

import asyncio

import pytest

from engine.patience import Patience
from tests.simulation.virtual_time import run_virtual


class _Over(Exception):
    """The time is over."""


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _wait(patience: Patience, seconds: float) -> float | None:
    """Wait inside; when that was given up, by the loop's clock, or None where it was not."""
    try:
        async with patience.bounded():
            await asyncio.sleep(seconds)
    except _Over:
        return _now()
    return None


def test_each_is_over_after_its_own_time_and_those_that_are_done_before_are_not() -> None:
    async def story() -> None:
        patience, begun = Patience(4.0, _Over), _now()
        waits = []
        for number in range(6):
            waits.append(asyncio.create_task(_wait(patience, 100.0 if number % 2 else 3.0)))
            await asyncio.sleep(1.0)
        given_up = await asyncio.gather(*waits)
        assert [each and round(each - begun, 3) for each in given_up] == [None, 5.0, None, 7.0, None, 9.0]
        # And again, after nobody waited.
        await asyncio.sleep(10.0)
        begun = _now()
        assert await _wait(patience, 100.0) == pytest.approx(begun + 4.0)

    run_virtual(story())


def test_a_cancellation_from_elsewhere_stays_one() -> None:
    async def story() -> None:
        patience = Patience(4.0, _Over)
        wait = asyncio.create_task(_wait(patience, 100.0))
        await asyncio.sleep(1.0)
        wait.cancel()
        with pytest.raises(asyncio.CancelledError):
            await wait

    run_virtual(story())


def test_both_at_once_are_a_cancellation() -> None:
    async def story() -> None:
        patience = Patience(4.0, _Over)
        wait = asyncio.create_task(_wait(patience, 100.0))
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_at(_now() + 4.0, wait.cancel)
        with pytest.raises(asyncio.CancelledError):
            await wait

    run_virtual(story())


def test_one_inside_another_is_over_by_its_own_time() -> None:
    async def story() -> None:
        outer, inner, begun = Patience(4.0, _Over), Patience(1.0, _Over), _now()
        async with outer.bounded():
            assert await _wait(inner, 100.0) == pytest.approx(begun + 1.0)
            await asyncio.sleep(2.0)
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr] # it runs

    run_virtual(story())


def test_an_error_from_inside_is_raised_as_it_is() -> None:
    async def story() -> None:
        with pytest.raises(LookupError):
            async with Patience(4.0, _Over).bounded():
                raise LookupError

    run_virtual(story())


def test_without_a_limit_it_takes_as_long_as_it_takes() -> None:
    run_virtual(_wait(Patience(None, _Over), 1e6))
