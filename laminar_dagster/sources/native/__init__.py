"""What is compiled: a small library in C that is called with ctypes, and may be missing."""
