"""Where results go: one adapter a file."""
