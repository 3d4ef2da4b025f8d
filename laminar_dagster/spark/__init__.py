"""The bounded job of an epoch, on Spark."""
