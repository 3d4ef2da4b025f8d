"""Tests that need no service, no network and no clock but their own."""
