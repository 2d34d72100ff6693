"""What was said in a run: its transcript, and what the next model call would see."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from engine.replay.history import History, portions
from schemas.log_record import parse_record_id
from schemas.message_forms import FormError
from schemas.messages import Message, MessagesError, ToolResultPart, decode_messages
from schemas.refusals import Code, Refusal, Refused, invalid, refuse
from schemas.replays import KeptTurns, ModelInput, SaidMessage, Transcript
from schemas.transcripts import validate_bedrock, validate_planner
from schemas.values import Record
from schemas.view_records import HISTORY_SUMMARIZED, MESSAGES_APPENDED, MESSAGES_SEEDED, read_summarized_digest


async def read_transcript(history: History, through: str) -> Transcript:
    """The transcript of a run, to its end or through one of its records. Raises `Refused`."""
    end = _end(history, through)
    messages: list[Message] = []
    said: list[SaidMessage] = []
    for record, decoded in await _decoded(history, end):
        seed = record.content.type == MESSAGES_SEEDED
        said += [SaidMessage(message.stored, record.id, seed) for message in decoded]
        messages += decoded
    return Transcript(tuple(said), validate_planner(messages), validate_bedrock(messages))


async def read_model_input(history: History, keep_turns: int) -> ModelInput:
    """What the next model call of a run would see; the newest turns apart where any are to be kept. Raises `Refused`.

    A turn starts at a user message that holds anything but tool results; what comes before the first turn belongs to
    none, and is older than all of them.
    """
    messages = [message for _, decoded in await _decoded(history, history.end) for message in decoded]
    if not messages:
        raise Refused(_no_transcript(history))
    stored = tuple(message.stored for message in messages)
    if not keep_turns:
        return ModelInput(stored, None)
    starts = [index for index, message in enumerate(messages) if _starts_turn(message)]
    cut = starts[-keep_turns:][0] if starts else len(messages)
    digest = hashlib.sha256(b"".join(stored[:cut])).hexdigest()
    return ModelInput(stored, KeptTurns(stored[cut:], stored[:cut], digest, await _summary(history, digest)))


def _starts_turn(message: Message) -> bool:
    return message.role == "user" and any(not isinstance(part, ToolResultPart) for part in message.parts)


async def _summary(history: History, digest: str) -> bytes | None:
    """The payload of the newest summary of the messages with this digest; one of another shape is of nothing."""
    positions = await history.positions(history.row, HISTORY_SUMMARIZED)
    for portion in portions(positions[::-1]):
        for record in await history.records(portion):
            try:
                if read_summarized_digest(record.content.payload) == digest:
                    return record.content.payload
            except FormError:
                continue
    return None


def _end(history: History, through: str) -> int:
    if not through:
        return history.end
    place = parse_record_id(through)
    position = None if place is None else history.position_of(*place)
    if position is None:
        raise Refused(invalid(f"through must be a record of run {history.run_id!r}", run_id=history.run_id))
    return position + 1


async def _decoded(history: History, end: int) -> list[tuple[Record, Sequence[Message]]]:
    """The run's transcript records before a position, each with its messages."""
    positions = await history.positions(history.row, MESSAGES_SEEDED, MESSAGES_APPENDED)
    found: list[tuple[Record, Sequence[Message]]] = []
    for portion in portions([each for each in positions if each < end]):
        found += [(record, _messages(record)) for record in await history.records(portion)]
    if not found:
        raise Refused(_no_transcript(history))
    return found


def _messages(record: Record) -> Sequence[Message]:
    try:
        return decode_messages(record.content.payload)
    except MessagesError as error:
        run_id = record.content.run_id
        detail = f"record {record.id} of run {run_id!r} does not decode: {error}"
        raise Refused(refuse(Code.TRANSCRIPT_INVALID, detail, run_id=run_id, record_id=record.id)) from None


def _no_transcript(history: History) -> Refusal:
    run_id = history.run_id
    return refuse(Code.TRANSCRIPT_NOT_FOUND, f"run {run_id!r} has no messages to show", run_id=run_id)
