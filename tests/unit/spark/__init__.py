"""Tests of what the engine consists of."""
