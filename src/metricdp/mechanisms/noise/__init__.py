"""Exact noise on a lattice without outputs: the noisy point itself is the report."""

from metricdp.mechanisms.family import Family

__all__ = ["FAMILY"]

FAMILY = Family(
    kind="noise",
    mechanism_at="metricdp.mechanisms.noise.mechanism:Noise",
    prove_at="metricdp.mechanisms.noise.proof:prove",
    on_device=("draw",),
    first_format=3,
)
