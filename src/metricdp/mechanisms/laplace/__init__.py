"""Laplace noise on a lattice, noisy points taken to outputs."""

from metricdp.mechanisms.family import Family, Method

__all__ = ["FAMILY"]

FAMILY = Family(
    kind="lattice-laplace",
    mechanism_at="metricdp.mechanisms.laplace.mechanism:LatticeLaplace",
    prove_at="metricdp.mechanisms.laplace.proof:prove",
    on_device=("draw",),
    methods=(
        Method(
            name="laplace",
            label="Laplace",
            colour="#bcbd22",
            design_at="metricdp.mechanisms.laplace.fit:fit_laplace",
            options_at="metricdp.mechanisms.laplace.fit:LaplaceOptions",
        ),
        Method(
            name="laplace-remap",
            label="Laplace + remap",
            colour="#ff7f0e",
            design_at="metricdp.mechanisms.laplace.fit:fit_laplace_remap",
            options_at="metricdp.mechanisms.laplace.fit:LaplaceOptions",
        ),
    ),
)
