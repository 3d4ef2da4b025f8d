"""A sink that publishes into a Delta Lake table."""
