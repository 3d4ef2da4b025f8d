"""Decoders from bytes to Arrow: one for each format, whatever the source."""
