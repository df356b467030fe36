"""Mechanisms: one folder for each family, the registry of families, and the front door `fit`."""
