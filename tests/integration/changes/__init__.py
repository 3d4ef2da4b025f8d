"""What holds for every source of changes, whatever database it reads."""
