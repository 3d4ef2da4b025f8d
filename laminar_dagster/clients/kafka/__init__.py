"""Clients of a Kafka cluster, shared by sources and sinks."""
