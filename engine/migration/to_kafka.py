"""A store with an embedded log moved to Kafka.

The order is what makes it safe to break off anywhere: the topics are claimed, filled, given the keys, and all is read
back; then one write of `store.json` says that the log is on Kafka. Before it, the folder serves as ever and nobody can
open the topics; after it, what is left is to tidy. The same command goes on from wherever that was.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Final

from engine.data_folder import DataFolder
from engine.durable import sync_folder
from engine.environment import Environment
from engine.kafka.client import KafkaClient
from engine.kafka.settings import KafkaSettings
from engine.keys.master import MasterKey
from engine.logs.embedded import EmbeddedLog
from engine.migration.arrival import Arrival, Filled
from engine.migration.folders import AGREED_NAMES, Folder
from engine.migration.keys_folder import read_folder
from engine.migration.telling import Moved, Tell
