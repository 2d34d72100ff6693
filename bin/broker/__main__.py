"""The command line; `bin/kafka` calls it."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Final

from bin.broker import commands
from bin.broker.cluster import SECURITIES, brokers_max
from bin.broker.errors import BrokerError, UsageError
from bin.broker.starting import Asked, start

FOLDER: Final = "runstore-kafka"
EXIT_NOT_RUNNING: Final = 3


def main() -> int:
    """Do what is asked; 1 if it fails, 2 if it makes no sense, 3 for the status of brokers that do not all run."""
    asked = _parser().parse_args()
    try:
        return _run(asked)
    except BrokerError as error:
        print(f"kafka: {error}", file=sys.stderr)
        return error.status
    except OSError as error:
        print(f"kafka: {error}; --dir names another folder for the cluster", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("kafka: interrupted; brokers that were started go on, until `kafka stop`", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bin/kafka", description="Run real Kafka brokers on this machine, for tests and development."
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="COMMAND")
    folder = argparse.ArgumentParser(add_help=False)
    folder.add_argument("--dir", type=Path, default=Path(FOLDER), help=f"the cluster's folder; {FOLDER} by default")

    starting = verbs.add_parser(
        "start",
        parents=[folder],
        help="start a new cluster, or what is dead of an old one; the last line is the bootstrap address",
    )
    starting.add_argument("--brokers", type=int, metavar="N", help="how many; 1 by default")
    starting.add_argument("--security", choices=SECURITIES, help="what it demands of clients; plaintext by default")
    starting.add_argument("--broker", type=int, metavar="ID", help="start this one alone")
    starting.add_argument(
        "--advertise",
        action="append",
        default=[],
        metavar="ID=HOST:PORT",
        help="let a broker name this address to clients, a proxy's; once for each broker",
    )
    starting.add_argument(
        "--property", action="append", default=[], metavar="K=V", help="a setting of all brokers; may be repeated"
    )
    verbs.add_parser("stop", parents=[folder], help="stop all brokers in good order; their data stays")
    status = verbs.add_parser("status", parents=[folder], help="tell what the brokers do, and what clients must know")
    status.add_argument("--json", action="store_true", help="tell it as JSON")
    killing = verbs.add_parser("kill", parents=[folder], help="send brokers a signal")
    killing.add_argument("--broker", type=int, metavar="ID", help="to this one alone")
    killing.add_argument("--signal", choices=commands.SIGNALS, default="KILL", help="KILL by default")
    leading = verbs.add_parser("leader", parents=[folder], help="tell which broker leads a partition")
    leading.add_argument("topic")
    leading.add_argument("partition", type=int)
    return parser


def _run(asked: argparse.Namespace) -> int:
    folder = Path(asked.dir).absolute()
    match asked.verb:
        case "start":
            print(start(_start(folder, asked)).bootstrap)
        case "stop":
            commands.stop(folder)
        case "kill":
            commands.kill(folder, asked.broker, commands.SIGNALS[asked.signal])
        case "leader":
            print(commands.leader(folder, asked.topic, asked.partition))
        case _:
            return _status(folder, as_json=asked.json)
    return 0


def _start(folder: Path, asked: argparse.Namespace) -> Asked:
    if asked.brokers is not None and not 1 <= asked.brokers <= brokers_max:
        raise UsageError(f"{asked.brokers} brokers make no cluster; ask for 1 to {brokers_max}")
    advertised = {}
    for name, address in _pairs("--advertise", asked.advertise).items():
        host, _, port = address.rpartition(":")
        if not (name.isdecimal() and host and port.isdecimal()):
            raise UsageError(f"--advertise {name}={address} is not like 1=127.0.0.1:9092")
        advertised[int(name)] = address
    properties = _pairs("--property", asked.property)
    return Asked(folder, asked.brokers, asked.security, asked.broker, advertised, properties)


def _pairs(option: str, values: list[str]) -> dict[str, str]:
    for value in values:
        if "=" not in value or "\n" in value:
            raise UsageError(f"{option} {value!r} is not like NAME=VALUE, on one line")
    return {name: content for name, _, content in (value.partition("=") for value in values)}


def _status(folder: Path, *, as_json: bool) -> int:
    found = commands.status(folder)
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        for name, value in found.items():
            if name != "brokers":
                print(f"{name}: {' '.join(value) if isinstance(value, list) else value}")
        for broker in found["brokers"]:
            print(f"broker {broker['id']}: {broker['state']}", *(f"{k}={v}" for k, v in list(broker.items())[2:]))
    return 0 if all(broker["state"] == "running" for broker in found["brokers"]) else EXIT_NOT_RUNNING


if __name__ == "__main__":
    sys.exit(main())
