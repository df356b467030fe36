"""The exponential mechanism: plain (EM), truncated (TEM) and remapped (RMP)."""

from metricdp.mechanisms.family import Family, Method

__all__ = ["FAMILY"]

FAMILY = Family(
    kind="exponential",
    mechanism_at="metricdp.mechanisms.exponential.mechanism:Exponential",
    prove_at="metricdp.mechanisms.exponential.proof:prove",
    methods=(
        Method(
            name="em",
            label="Exponential",
            colour="#7f7f7f",
            design_at="metricdp.mechanisms.exponential.fit:fit_em",
            options_at="metricdp.mechanisms.options:ClosedFormOptions",
            takes_maps=True,
        ),
        Method(
            name="tem",
            label="Truncated exponential",
            colour="#c49c94",
            design_at="metricdp.mechanisms.exponential.fit:fit_tem",
            options_at="metricdp.mechanisms.exponential.fit:TruncatedOptions",
        ),
        Method(
            name="em-remap",
            label="Exponential + remap",
            colour="#8c564b",
            design_at="metricdp.mechanisms.exponential.fit:fit_em_remap",
            options_at="metricdp.mechanisms.options:ClosedFormOptions",
        ),
    ),
)
