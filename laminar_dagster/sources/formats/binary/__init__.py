"""Vector primitives that the binary formats share."""
