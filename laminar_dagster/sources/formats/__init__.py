"""From bytes to Arrow: one decoder for each format, whatever the source."""
