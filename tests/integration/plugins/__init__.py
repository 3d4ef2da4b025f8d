"""A plug-in of its own distribution: the one in examples/laminar_duckdb."""
