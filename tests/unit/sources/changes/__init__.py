"""Tests of what sources of changes share."""
