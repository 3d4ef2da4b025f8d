"""Loads the optional compiled library: a small one in C, called with ctypes."""
