"""The logs behind one interface: embedded (RocksDB), simulated (in memory, with faults); Kafka joins them here."""
