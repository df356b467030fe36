"""Immutable mechanisms, one file per kind; none knows how it was optimised."""
