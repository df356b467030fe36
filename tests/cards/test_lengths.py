"""Lengths as people write them, and numbers that are rounded to the side that keeps a promise."""

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from metricdp._lengths import length_km, length_text, rounded
from metricdp.errors import InvalidInputError

POSITIVE = st.floats(min_value=1e-300, max_value=1e300)


@pytest.mark.parametrize(
    ("text", "km"),
    [("500m", 0.5), ("0.5km", 0.5), ("2 km", 2.0), (" 1500 m ", 1.5), (".25km", 0.25), ("3.km", 3.0), ("0.1m", 1e-4)],
)
def test_lengths(text, km):
    assert length_km("radius", text) == km


@pytest.mark.parametrize(
    "text",
    [
        "500",
        "km",
        "",
        "-1km",
        "0m",
        "0.0km",
        "1e3m",
        "nan km",
        "infkm",
        "5 miles",
        "5m5",
        "1,5km",
        "٥m",
        "500KM",
        "5\nm x",
    ],
)
def test_what_is_no_length_is_refused(text):
    with pytest.raises(InvalidInputError, match="`radius` must be a length"):
        length_km("radius", text)


@given(POSITIVE, st.integers(1, 8))
def test_rounding_goes_to_the_side_that_was_asked_for(number, digits):
    exact = Decimal(repr(number))
    down, up = rounded(number, ROUND_FLOOR, digits), rounded(number, ROUND_CEILING, digits)
    assert down <= exact <= up
    for one in (down, up):
        assert len(one.as_tuple().digits) <= digits
        assert abs(one / exact - 1) <= Decimal(10) ** (1 - digits)


@given(st.floats(min_value=1e-9, max_value=1e6))
def test_a_length_in_words_is_that_length(km):
    assume(rounded(km, ROUND_FLOOR) > 0)
    number, unit = length_text(km, "km", ROUND_FLOOR).split()
    assert Decimal(number) * {"m": Decimal("0.001"), "km": 1}[unit] == rounded(km, ROUND_FLOOR)
    assert length_text(km, "", ROUND_FLOOR) == length_text(km, "", ROUND_FLOOR).strip()


@pytest.mark.parametrize(
    ("km", "words"), [(0.5, "500 m"), (0.0866434, "86.6 m"), (1.0, "1 km"), (12.345, "12.3 km"), (0.0, "0 m")]
)
def test_words_are_short(km, words):
    assert length_text(km, "km", ROUND_FLOOR) == words
