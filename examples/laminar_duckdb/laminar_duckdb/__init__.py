"""DuckDB tables as sources and sinks of ``laminar_dagster``."""
