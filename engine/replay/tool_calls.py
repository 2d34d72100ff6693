"""The tool calls of a run. A result belongs to a call by the runtime's ID; the provider's joins nothing."""

from __future__ import annotations

from dataclasses import replace

from engine.replay.history import History, portions
from schemas.message_forms import FormError
from schemas.replays import ToolCall, ToolCalls, Unreadable
from schemas.values import Record
from schemas.view_records import (
    TOOL_CALL_SCHEDULED,
    TOOL_RESULT_RECEIVED,
    read_tool_call_scheduled,
    read_tool_result_received,
)


async def read_tool_calls(history: History) -> ToolCalls:
    """The tool calls of a run in the order in which each was first met. Raises `Refused`."""
    pairs = Pairs()
    unreadable: list[Unreadable] = []
    for portion in portions(await history.positions(history.row, TOOL_CALL_SCHEDULED, TOOL_RESULT_RECEIVED)):
        for record in await history.records(portion):
            try:
                pairs.meet(record)
            except FormError as error:
                unreadable.append(Unreadable(record, str(error)))
    return ToolCalls(tuple(pairs.calls), tuple(unreadable))


class Pairs:
    """Calls and their results, joined as their records are met.

    Of several records with one ID the first counts. A result may come before its call. Records without an ID are
    joined with nothing.
    """

    def __init__(self) -> None:
        self.calls: list[ToolCall] = []
        self._places: dict[str, int] = {}

    def meet(self, record: Record) -> None:
        """Take in the next record; FormError for a payload of another shape."""
        if record.content.type == TOOL_CALL_SCHEDULED:
            self._scheduled(record)
        else:
            self._received(record)

    def _scheduled(self, record: Record) -> None:
        told = read_tool_call_scheduled(record.content.payload)
        place = self._place(told.tool_call_id)
        call = self.calls[place]
        if call.scheduled is None:
            self.calls[place] = replace(
                call,
                model_tool_call_id=told.model_tool_call_id,
                tool_name=told.tool_name or call.tool_name,
                scheduled=record.id,
            )

    def _received(self, record: Record) -> None:
        told = read_tool_result_received(record.content.payload)
        place = self._place(told.tool_call_id)
        call = self.calls[place]
        if call.result is None:
            self.calls[place] = replace(
                call, tool_name=call.tool_name or told.tool_name, result=record.id, failed=told.failed
            )

    def _place(self, tool_call_id: str) -> int:
        """Where the call of an ID is; a new one where it was not met, and for no ID at all."""
        place = self._places.get(tool_call_id)
        if place is None:
            place = len(self.calls)
            self.calls.append(ToolCall(tool_call_id, None, "", None, None, failed=False))
            if tool_call_id:
                self._places[tool_call_id] = place
        return place
