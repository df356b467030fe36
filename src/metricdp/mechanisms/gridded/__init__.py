"""One row for each cell of a grid (lp, copt): for comparison, not private across the borders of cells."""

from metricdp.mechanisms.family import Family, Method

__all__ = ["FAMILY"]

FAMILY = Family(
    kind="cellwise",
    mechanism_at="metricdp.mechanisms.gridded.mechanism:Cellwise",
    prove_at="metricdp.mechanisms.gridded.proof:prove",
    methods=(
        Method(
            name="lp",
            label="LP",
            colour="#17becf",
            design_at="metricdp.mechanisms.gridded.lp:fit_lp",
            options_at="metricdp.mechanisms.gridded.lp:LpOptions",
            private=False,
        ),
        Method(
            name="copt",
            label="ConstOPT",
            colour="#e377c2",
            design_at="metricdp.mechanisms.gridded.copt:fit_copt",
            options_at="metricdp.mechanisms.gridded.copt:CoptOptions",
            private=False,
        ),
    ),
)
