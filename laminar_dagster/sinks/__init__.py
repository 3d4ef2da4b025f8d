"""Where results go: a package for each kind of place, and what they share."""
