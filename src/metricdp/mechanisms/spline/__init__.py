"""Splines: piecewise polynomial probabilities whose privacy is a finite set of cones."""

from metricdp.mechanisms.family import Family, Method

__all__ = ["FAMILY"]

FAMILY = Family(
    kind="spline",
    mechanism_at="metricdp.mechanisms.spline.mechanism:Spline",
    prove_at="metricdp.mechanisms.spline.proof:prove",
    on_device=("draw", "probabilities"),
    methods=(
        Method(
            name="spline",
            label="Spline",
            colour="#2ca02c",
            design_at="metricdp.mechanisms.spline.fit:fit_spline",
            options_at="metricdp.mechanisms.spline.fit:SplineOptions",
            takes_maps=True,
        ),
    ),
)
