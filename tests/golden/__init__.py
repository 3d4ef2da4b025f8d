"""Documents written by released formats, which every later release must read."""
