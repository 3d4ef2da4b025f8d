"""Proofs of the whole engine: real Spark, real stores, real sinks, real kills."""
