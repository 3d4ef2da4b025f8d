"""Rows as messages: Arrow in, bytes out."""
