"""Programs beside the store, which import nothing of it: what they know stands in `docs/`."""
