"""Experiments: one engine of jobs for comparisons of methods and for the paper's tables and figures."""
