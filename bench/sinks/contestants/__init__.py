"""Other systems that write the same rows, each in a process of its own."""
