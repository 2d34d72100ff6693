"""One module a command of `runstore`, each with its click command as `command`."""
