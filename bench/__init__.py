"""Benchmarks: ``python -m bench`` measures, and asserts nothing about time."""
