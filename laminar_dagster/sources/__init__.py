"""Adapters of the systems that records are read from, and the formats they share."""
