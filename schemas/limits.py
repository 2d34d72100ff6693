"""Every limit of the interface, named, with its unit last. A limit is refused by name, never cut."""

from __future__ import annotations

from typing import Final

body_bytes_max: Final = 16 * 1024 * 1024
payload_bytes_max: Final = 4 * 1024 * 1024
checkpoint_bytes_max: Final = 8 * 1024 * 1024
labels_count_max: Final = 64
label_bytes_max: Final = 1024
id_bytes_max: Final = 512
reason_bytes_max: Final = 1024
payload_depth_max: Final = 128
page_records_max: Final = 1000
page_records_default: Final = 100
page_bytes_max: Final = 8 * 1024 * 1024
batch_commands_max: Final = 1000
consumer_types_max: Final = 64
memory_append_bytes_max: Final = body_bytes_max
