"""Where records come from: one adapter a file."""
