"""Random bits and exact draws."""
