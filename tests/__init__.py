"""Tests of laminar_dagster, by how much of the world they need."""
