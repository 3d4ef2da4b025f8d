"""What sources of changes to tables share, whatever database they come from."""
