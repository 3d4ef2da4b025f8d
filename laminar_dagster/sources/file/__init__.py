"""A directory of files as a source."""
