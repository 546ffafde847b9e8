"""The command `semishot`: parse, call one function, print; exit codes."""
