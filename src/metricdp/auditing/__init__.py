"""Looking for violations: between pairs of points, from samples alone, and of samplers against probabilities."""
