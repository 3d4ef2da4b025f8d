"""A sink that writes to a Kafka topic."""
