"""A store and a hundred readers that never read, in a process of their own: what memory they take, and who notices.

Prints one JSON object: resident bytes before and after, the seconds that a healthy reader waited at most for a record
once it was acknowledged, how many readers were dropped, and whether the healthy reader got everything.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

from service.events import StreamTimes
from tests.contract.makers import InProcess, on_disk
from tests.contract.scene import Scene
from tests.service.served import served
from tests.streams.sse import EVERYTHING, reading, readings, session_stream

READERS = 100
PAYLOAD_BYTES = 16 * 1024
RECORDS = 1600
TIMES = StreamTimes(heartbeat_seconds=30.0, stall_seconds=0.5)


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096


async def main(folder: Path) -> None:
    async with on_disk(folder) as store, served(store, stream_times=TIMES) as service:
        scene = Scene(InProcess(store), "stalled")
        run = await scene.run()
        payload = json.dumps("y" * PAYLOAD_BYTES)
        half = READERS // 2
        async with (
            readings(service, EVERYTHING, half, receive_bytes=4096),
            readings(service, session_stream(run.session_id), half, receive_bytes=4096),
            reading(service, session_stream(run.session_id)) as healthy,
        ):
            await healthy.some(1)
            for number in range(20):
                await scene.do(run.append(f"warm/{number}", payload))
                await healthy.some(1)
            before = peak = resident_bytes()
            slowest = 0.0
            for number in range(RECORDS):
                await scene.do(run.append(f"{number}", payload))
                acknowledged = time.perf_counter()
                (got,) = await healthy.some(1)
                slowest = max(slowest, time.perf_counter() - acknowledged)
                assert got.key == f"{number}", f"{got.key} instead of {number}"
                if number % 50 == 0:
                    peak = max(peak, resident_bytes())
            peak = max(peak, resident_bytes())
            dropped = 0
            deadline = time.monotonic() + 20
            while dropped < READERS and time.monotonic() < deadline:
                await asyncio.sleep(0.1)
                text = (await service.http.get("/metrics")).text
                dropped = int(float(text.split("\nrunstore_stream_readers_dropped_total ")[1].split("\n")[0]))
        told = {"grown_bytes": peak - before, "slowest_seconds": slowest, "dropped": dropped}
        sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
