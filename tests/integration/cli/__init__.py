"""The command line as users have it: an installed script, real pipes, terminals and services."""
