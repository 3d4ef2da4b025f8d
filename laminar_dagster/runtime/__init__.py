"""Carries out the protocol's steps with real adapters."""
