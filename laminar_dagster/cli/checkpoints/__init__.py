"""``laminar checkpoints``: one module for each command."""
