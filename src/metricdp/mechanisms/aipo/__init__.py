"""AIPO, the paper's mechanism: logarithms of probabilities are interpolated between anchors."""

from metricdp.mechanisms.family import Family, Method

__all__ = ["FAMILY"]

FAMILY = Family(
    kind="log-convex",
    mechanism_at="metricdp.mechanisms.aipo.mechanism:LogConvex",
    prove_at="metricdp.mechanisms.aipo.proof:prove",
    methods=(
        Method(
            name="aipo",
            label="AIPO",
            colour="#1f77b4",
            design_at="metricdp.mechanisms.aipo.fit:fit_aipo",
            options_at="metricdp.mechanisms.aipo.fit:AipoOptions",
        ),
        Method(
            name="aipo-e",
            label="AIPO-E",
            colour="#aec7e8",
            design_at="metricdp.mechanisms.aipo.fit:fit_aipo_equal",
            options_at="metricdp.mechanisms.aipo.fit:AipoOptions",
        ),
        Method(
            name="aipo-r",
            label="AIPO-R",
            colour="#9edae5",
            design_at="metricdp.mechanisms.aipo.fit:fit_aipo_relaxed",
            options_at="metricdp.mechanisms.aipo.fit:AipoOptions",
            private=False,
        ),
    ),
)
