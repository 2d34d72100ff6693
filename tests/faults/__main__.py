"""The campaigns' command line; `bin/faults` calls it."""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import Final

CAMPAIGNS: Final = {
    "power": "lose power at many points of a story",
    "flips": "flip bits in a store's files, and cut them short",
    "kill": "kill a serving store under load",
    "kafka": "harm brokers, network and stores; several campaigns, see `bin/faults kafka --help`",
}


def main() -> int:
    """Run the campaign that is asked for; 1 on a failure."""
    parser = argparse.ArgumentParser(
        prog="bin/faults",
        description="Harm a store, open it again, and account for everything that was answered. "
        "`bin/faults CAMPAIGN --help` tells the rest.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(f"  {name:6} {what}" for name, what in CAMPAIGNS.items()),
    )
    parser.add_argument("campaign", choices=CAMPAIGNS, metavar="CAMPAIGN", help="power, flips, kill or kafka")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="its own arguments")
    asked = parser.parse_args()
    name = "tests.kafka.faults.__main__" if asked.campaign == "kafka" else f"tests.faults.{asked.campaign}"
    return int(importlib.import_module(name).main(asked.arguments))


if __name__ == "__main__":
    sys.exit(main())
