"""``laminar epochs``: one module for each command."""
