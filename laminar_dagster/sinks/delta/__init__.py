"""Publishing into a table of Delta Lake."""
