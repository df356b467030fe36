"""What every proof returns, and the sentences that state it.

A proof is a function `prove` in the folder of its family. It takes a mechanism and shows, from the mechanism's numbers
alone, the claim in the plane: between any two points of the box, as given, no report is more than e^{ε (d_p + r)} times
likelier from one than from the other, with ε = `Mechanism.plane_epsilon` and r = `Mechanism.rounding`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_FLOOR
from fractions import Fraction
from typing import Any

from metricdp._lengths import length_text
from metricdp.mechanisms.base import Mechanism

__all__ = ["ROUNDOFF", "Finding", "at_least", "float_below", "is_uniform", "path_claim", "proved", "refused"]

# Unit roundoff of float64.
ROUNDOFF = 2.0**-53


@dataclass(frozen=True)
class Finding:
    """What a proof or a search for counterexamples came to; see `metricdp.Certificate`."""

    holds: bool
    claim: str
    worst_ratio: float
    worst_where: dict[str, Any]
    checked: int


def is_uniform(mechanism: Mechanism) -> bool:
    """Return whether one ε counts everywhere."""
    return mechanism.epsilon_map is None or mechanism.epsilon_map.is_constant


def proved(mechanism: Mechanism, reason: str) -> str:
    """Return the claim of a proof, with what it rests on."""
    ground = mechanism.distance == "ground"
    rounding = mechanism.claimed_rounding if ground else mechanism.rounding
    unit = " km" if mechanism.projection is not None else ""
    where = "on the ground" if ground else "on the map" if unit else ""
    axes = "" if mechanism.p == 2 else " (measured along east and north)" if ground else ""
    distance = " ".join(filter(None, (f"d{unit}", where)))
    along_paths = "" if is_uniform(mechanism) else f"{path_claim(mechanism)} In particular "
    return (
        f"{along_paths}({mechanism.epsilon}, d_{mechanism.p:g})-mDP on the whole box, for points as given: no report "
        f"is more than exp({mechanism.epsilon} (d + r)) times likelier from one point than from another at distance "
        f"{distance}{axes}, with r = {at_least(rounding)}{unit}. {reason}"
    )


def path_claim(mechanism: Mechanism) -> str:
    """Return the claim of a mechanism with a map of ε, in words."""
    local = mechanism.epsilon_map
    assert local is not None
    ground = mechanism.distance == "ground"
    rounding = mechanism.claimed_rounding if ground else mechanism.rounding
    unit = "km" if mechanism.projection is not None else ""
    lengths = f"lengths in {unit} {'on the ground' if ground else 'on the map'}, " if unit else ""
    straight = mechanism.straight_epsilon / mechanism.epsilon
    near, far = (length_text(1 / (value * straight), unit, ROUND_FLOOR) for value in (local.max, local.min))
    return (
        f"Private by a map of epsilon, from {local.min} to {local.max}: no report is more than exp(E + {local.max} r) "
        f"times likelier from one point than from another, as given, where E is the integral of epsilon along any path "
        f"inside the box that joins them ({lengths}r = {at_least(rounding)}{f' {unit}' if unit else ''}). So any "
        f"two places within {near} of each other are told apart by a factor of at most e, rounding apart, and within "
        f"{far} if the straight line between them stays where epsilon is {local.min}."
    )


def refused(mechanism: Mechanism, reason: str) -> str:
    """Return what is said of a mechanism whose proof failed."""
    return f"Not proved to be ({mechanism.epsilon}, d_{mechanism.p:g})-mDP: {reason}"


def float_below(number: Fraction) -> float:
    """Return the largest float that is at most `number`."""
    nearest = float(number)
    return nearest if Fraction(nearest) <= number else math.nextafter(nearest, -math.inf)


def at_least(number: float, digits: int = 3) -> str:
    """Return a decimal number of so many digits that is not below `number`.

    Examples
    --------
    >>> at_least(1.3487e-06), at_least(8.0), at_least(1.3487, 10)
    ('1.35e-06', '8', '1.3487')
    """
    text = f"{number:.{digits}g}"
    return text if float(text) >= number else f"{number * (1 + 10.0 ** (1 - digits)):.{digits}g}"
