"""Which names of columns mean which axis of a point, wherever tables come from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from metricdp._validation import reject

__all__ = ["AXES", "LATITUDE", "LONGITUDE", "last_word", "listed", "one_of", "point_names", "printable"]

LONGITUDE = ("lon", "lng", "long", "longitude")
LATITUDE = ("lat", "latitude")
AXES = (("x", "x_km", "value"), ("y", "y_km"), ("z", "z_km"))

_ALL_NAMES = {*LONGITUDE, *LATITUDE}.union(*AXES)


def point_names(names: Iterable[str]) -> list[str]:
    """Return the names that look like an axis of a point."""
    return [name for name in names if last_word(name) in _ALL_NAMES]


def one_of(names: Iterable[str], aliases: tuple[str, ...], parameter: str = "columns") -> str | None:
    """Return the one column with such a name, or the one whose last word is such a name.

    If several could be meant, an error asks for `parameter` with the columns named.
    """
    for spelled in (str.casefold, last_word):
        matching = [name for name in names if spelled(name) in aliases]
        if len(matching) > 1:
            raise reject(parameter, "named where several could be meant", listed(matching))
        if matching:
            return matching[0]
    return None


def last_word(name: str) -> str:
    """Return `longitude` for `pickup_longitude` or `pickupLongitude`."""
    if name.casefold() in _ALL_NAMES:
        return name.casefold()
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return re.split(r"[\s_.\-]+", spaced.strip())[-1].casefold()


def listed(names: Sequence[str], most: int = 20) -> str:
    """Return names for a message, without those that are long or have many digits: they may be data, not names."""
    shown = [printable(name) if sum(map(str.isdigit, name)) < 3 and len(name) <= 64 else "…" for name in names[:most]]
    return ", ".join(shown) + (", …" if len(names) > most else "")


def printable(name: str) -> str:
    """Return a name with its control characters escaped, so that it cannot act on a terminal."""
    return name if name.isprintable() else repr(name)[1:-1]
