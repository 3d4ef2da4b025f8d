"""A Kafka cluster, for whoever reads from it or writes to it."""
