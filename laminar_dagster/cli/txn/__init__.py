"""``laminar txn``: transactions of sinks that are not over."""
