"""``laminar state``: what the operators of a pipeline remember."""
