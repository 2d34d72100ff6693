"""Real faults: processes killed, files damaged, files searched."""
