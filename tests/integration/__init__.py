"""Tests against real services and real sockets."""
