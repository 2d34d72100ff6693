"""How Runstore is started: the command line, and the scripts that need nothing but Python."""
