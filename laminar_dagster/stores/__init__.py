"""Where checkpoints live: one adapter a file."""
