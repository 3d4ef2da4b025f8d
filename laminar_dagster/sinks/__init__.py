"""Sinks: a package for each kind of target, and modules that they share."""
