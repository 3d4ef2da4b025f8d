"""``laminar dead-letters``: records that were set aside."""
