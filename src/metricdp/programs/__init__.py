"""Optimisation problems as sparse matrices, one file each; none knows how it is solved."""
