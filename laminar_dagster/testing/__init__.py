"""Memory adapters, crash points and contract suites, for this project and for plug-in authors."""
