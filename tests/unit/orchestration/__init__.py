"""Tests of the orchestration layer."""
