"""Connections to services that both sources and sinks talk to."""
