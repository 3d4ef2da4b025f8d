"""The SQL of a pipeline: statements read with sqlglot, queries turned into the engine's model."""
