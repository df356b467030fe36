"""Lengths as people write them: `500m`, `0.5km`; and numbers rounded to the side that keeps a promise."""

from __future__ import annotations

import decimal
import re
from decimal import Decimal

from metricdp._validation import positive, reject

__all__ = ["length_km", "length_text", "rounded"]

_LENGTH = re.compile(r"(\d{1,15}(?:\.\d{0,15})?|\.\d{1,15})\s*(m|km)", re.ASCII)
_METRES = {"m": Decimal(1), "km": Decimal(1000)}


def length_km(name: str, text: str) -> float:
    """Read a length with its unit, metres or kilometres, and return kilometres.

    Examples
    --------
    >>> length_km("radius", "500m"), length_km("radius", "2 km")
    (0.5, 2.0)
    """
    found = _LENGTH.fullmatch(text.strip())
    rule = "a length with its unit, such as 500m, 0.5km or '2 km'"
    if found is None:
        raise reject(name, rule, repr(text))
    if not Decimal(found[1]):
        raise reject(name, "a length above zero", repr(text))
    return positive(name, float(Decimal(found[1]) * _METRES[found[2]] / 1000))


def rounded(number: float | Decimal, rounding: str, digits: int = 3) -> Decimal:
    """Return a number with so many significant digits; `rounding` is one of the constants of `decimal`.

    Examples
    --------
    >>> rounded(1.3862, decimal.ROUND_FLOOR), rounded(1.3862, decimal.ROUND_CEILING), rounded(2, decimal.ROUND_FLOOR)
    (Decimal('1.38'), Decimal('1.39'), Decimal('2'))
    """
    # A float stands for the shortest decimal that is read as it: 0.1 rounded up to three digits is 0.1, not 0.101.
    exact = number if isinstance(number, Decimal) else Decimal(repr(float(number)))
    short = decimal.Context(prec=digits, rounding=rounding, Emin=-999999, Emax=999999).plus(exact)
    return short.normalize(decimal.Context(prec=digits, Emin=-999999, Emax=999999))


def length_text(value: float, unit: str, rounding: str, digits: int = 3) -> str:
    """Return a distance in words: in metres below a kilometre, a plain number where there is no unit.

    Examples
    --------
    >>> length_text(0.125, "km", decimal.ROUND_FLOOR), length_text(1.2345, "km", decimal.ROUND_CEILING)
    ('125 m', '1.24 km')
    """
    short = rounded(value, rounding, digits)
    if unit != "km":
        return _plain(short)
    return f"{_plain(short * 1000)} m" if short < 1 else f"{_plain(short)} km"


def _plain(number: Decimal) -> str:
    """Return digits without an exponent where that is short enough to read."""
    number = number.normalize()
    return f"{number:f}" if -6 <= number.adjusted() <= 9 else f"{number:e}"
