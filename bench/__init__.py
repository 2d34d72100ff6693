"""How fast Runstore is, measured beside others on the same machine in the same run."""
