"""Tables of traces that are none: errors quote no place."""

import traceback

import pytest

import metricdp as mdp
from metricdp.traces.movement import Movement


@pytest.mark.parametrize("lon", [[12.0, [12.345678]], ["x", 12.345678], [12.345678], [object(), 12.345678]])
def test_a_column_that_is_none_is_not_quoted(lon):
    """Arrow's own messages show the value that they stumble over."""
    with pytest.raises(mdp.InvalidInputError) as caught:
        Movement.fit({"id": ["a", "a"], "unix_s": [0, 60], "lon": lon, "lat": [41.0, 41.1]})
    assert "12.345678" not in str(caught.value)
    chained = caught.value.__cause__ or (None if caught.value.__suppress_context__ else caught.value.__context__)
    assert "12.345678" not in "".join(traceback.format_exception_only(chained))
