"""Planted faults: slips that a programmer could make, each of which the simulation must find.

A fault is in the product only while `planted(fault)` is open. `planting` says how; the faults stand in
modules named after what they break.
"""

from __future__ import annotations

from typing import Final

from tests.simulation.planted_keys import KEYS, PURGES
from tests.simulation.planted_log import FOLDS, POSITIONS
from tests.simulation.planted_places import PLACES
from tests.simulation.planted_reads import READS
from tests.simulation.planted_records import CHANGES, RETRIES
from tests.simulation.planted_run_ids import RUN_IDS
from tests.simulation.planted_starts import SESSIONS, STARTS
from tests.simulation.planted_writer import BATCHES, FRESHNESS, OUTCOMES
from tests.simulation.planting import Planted, PlantingError, planted

__all__ = ["PLANTED", "Planted", "PlantingError", "planted"]

PLANTED: Final[tuple[Planted, ...]] = (
    *PLACES,
    *RETRIES,
    *CHANGES,
    *SESSIONS,
    *STARTS,
    *RUN_IDS,
    *BATCHES,
    *OUTCOMES,
    *FRESHNESS,
    *POSITIONS,
    *FOLDS,
    *KEYS,
    *PURGES,
    *READS,
)
"""Every fault."""
