"""The command line, run in this process on stores of a local disk."""
