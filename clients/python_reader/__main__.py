"""`python -m python_reader`: the records of a log that count, as lines of JSON."""

from __future__ import annotations

import argparse
import base64
import json
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from .errors import LogCut, ReaderError
from .reader import LogReader, Record
from .rule import Bookmark

FAILED: Final = 1
LOG_CUT: Final = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Print records until the end, or for ever; 0 for done, 1 for an error, 3 for a log that was cut."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    try:
        return _print_all(options)
    except LogCut as error:
        print(f"the log was cut or written again: {error}", file=sys.stderr)
        return LOG_CUT
    except (ReaderError, ValueError) as error:
        print(error, file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return 0
    except BrokenPipeError:
        # Whoever read the lines has enough. Python must not find that out once more at its own end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python_reader", description=(__doc__ or "").partition(": ")[2])
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT", help="the brokers, several with commas")
    parser.add_argument("--prefix", default="runstore", help="how the store's topics begin (default: %(default)s)")
    parser.add_argument("--partition", type=int, action="append", help="only this one; may be repeated")
    parser.add_argument("--master-key", type=Path, metavar="FILE", help="opens what is sealed")
    parser.add_argument("--follow", action="store_true", help="do not end at the end of the log")
    parser.add_argument(
        "--bookmarks", type=Path, metavar="FILE", help="go on where this file says, and keep there how far it went"
    )
    parser.add_argument(
        "--config", action="append", default=[], metavar="NAME=VALUE", help="a setting of librdkafka; may be repeated"
    )
    return parser


def _print_all(options: argparse.Namespace) -> int:
    config = dict(setting.split("=", 1) for setting in options.config)
    bookmarks = _load(options.bookmarks)
    with LogReader(
        {**config, "bootstrap.servers": options.bootstrap},
        prefix=options.prefix,
        partitions=options.partition,
        bookmarks=bookmarks,
        master_key_file=options.master_key,
        follow=options.follow,
    ) as reader:
        try:
            for record in reader:
                print(json.dumps(shown(record), ensure_ascii=False), flush=options.follow)
            sys.stdout.flush()
        finally:
            if options.bookmarks is not None:
                _save(options.bookmarks, bookmarks | reader.bookmarks())
        if reader.void_records:
            print(f"{reader.void_records} messages do not count, and were skipped", file=sys.stderr)
    return 0


def shown(record: Record) -> dict[str, Any]:
    """A record as JSON has it: fields that are empty left out, bytes as base64, a payload as the text it is."""
    fields: dict[str, Any] = {"id": record.id, "partition": record.partition}
    for name, value in asdict(record.log).items():
        if name == "sealed" or value in {"", b"", "none"} or (name == "home" and value < 0):
            continue
        fields[name] = value.hex() if isinstance(value, bytes) else value
    if record.sealed_because:
        fields["sealed"] = record.sealed_because
    if record.content is not None:
        content = record.content
        fields["payload"] = content.payload.decode()
        fields |= {name: value for name in ("labels", "reason", "checkpoint_id") if (value := getattr(content, name))}
        if content.checkpoint:
            fields["checkpoint"] = base64.b64encode(content.checkpoint).decode()
    return fields


def _load(path: Path | None) -> dict[int, Bookmark]:
    if path is None or not path.exists():
        return {}
    return {
        int(partition): Bookmark(kept["batch_start"], kept["batch_end"], bytes.fromhex(kept["digest"]))
        for partition, kept in json.loads(path.read_text()).items()
    }


def _save(path: Path, bookmarks: dict[int, Bookmark]) -> None:
    kept = {
        str(partition): {
            "batch_start": bookmark.batch_start,
            "batch_end": bookmark.batch_end,
            "digest": bookmark.digest.hex(),
        }
        for partition, bookmark in bookmarks.items()
    }
    draft = path.with_name(f"{path.name}.new")
    draft.write_text(json.dumps(kept, indent=1) + "\n")
    draft.replace(path)


if __name__ == "__main__":
    sys.exit(main())
