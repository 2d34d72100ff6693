"""What things are: values, commands, refusals, payloads and the form of a log record.

This layer imports no other layer and does no I/O. Inside the store every value here is a frozen
dataclass (or a msgspec struct where it is stored), times are whole milliseconds since 1970 in UTC,
and payloads are bytes that nobody re-encodes.
"""
