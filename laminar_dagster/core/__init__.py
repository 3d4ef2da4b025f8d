"""The rules of epochs and checkpoints: no I/O, no clock, no randomness."""
