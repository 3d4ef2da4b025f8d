"""What the binary formats have in common: numbers, texts and lists in bytes."""
