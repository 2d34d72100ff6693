"""Programs beside the store, tested against what the store really writes."""
