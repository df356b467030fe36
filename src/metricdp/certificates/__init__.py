"""Proofs: what is claimed, its proof from a mechanism's numbers, its statement in metres, and counterexamples."""
