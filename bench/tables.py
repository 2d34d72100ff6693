"""How figures are written: ratios round by round, medians, how far the rounds lie apart, and tables in plain text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import median

from bench.measuring import Measured


def ratios(ours: Sequence[Measured], others: Sequence[Measured]) -> str:
    """Rates compared round by round, so that what slows one round slows both."""
    return spread([one.rate / other.rate for one, other in zip(ours, others, strict=bool(others))], 2)


def p50_ratios(ours: Sequence[Measured], others: Sequence[Measured]) -> str:
    """The same of the median latencies."""
    return spread([one.p50_ms / other.p50_ms for one, other in zip(ours, others, strict=bool(others))], 2)


def rates(measured: Sequence[Measured]) -> str:
    """Commands a second."""
    return spread([each.rate for each in measured], 0)


def latencies(measured: Sequence[Measured]) -> tuple[str, str]:
    """The 50th and the 99th percentile (ms)."""
    if not measured:
        return "-", "-"
    return f"{median(each.p50_ms for each in measured):.1f}", f"{median(each.p99_ms for each in measured):.1f}"


def p50(measured: Sequence[Measured]) -> str:
    """The 50th percentile (ms), finer."""
    return f"{median(each.p50_ms for each in measured):.2f}" if measured else "-"


def microseconds(measured: Sequence[Measured]) -> str:
    """What one took (us)."""
    return f"{median(1e6 / each.rate for each in measured):.1f}" if measured else "-"


def processor_microseconds(measured: Sequence[Measured]) -> str:
    """Processor time that one took (us), of the measured process alone."""
    return f"{median(1e6 * each.processor_share / each.rate for each in measured):.0f}" if measured else "-"


def spread(values: Sequence[float], decimals: int) -> str:
    """The median, and in brackets the lowest and the highest."""
    if not values:
        return "-"
    return f"{median(values):,.{decimals}f} [{min(values):,.{decimals}f} to {max(values):,.{decimals}f}]"


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows in columns; the first is a text, the others are figures."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        aligned: list[Callable[[int], str]] = [row[0].ljust, *(cell.rjust for cell in row[1:])]
        yield "  ".join(align(width) for align, width in zip(aligned, widths, strict=True)).rstrip()
