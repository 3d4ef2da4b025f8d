"""One pytest plug-in per real service, and the wire that can be cut."""
