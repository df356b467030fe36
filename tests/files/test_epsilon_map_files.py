"""Maps of ε as JSON files: written and read again, and what strangers may put into them."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import metricdp as mdp
from metricdp.files.map_files import map_as_dict, map_from_dict, read_map, write_map
from metricdp.geometry.projection import Equirectangular

HERE = Equirectangular(24.94, 60.17)
GOOD = {
    "metricdp": "epsilon map", "format": 1, "coordinates": "projected",
    "breakpoints": [[0, 1, 3], [0, 2]], "values": [[0.5], [2]],
}  # fmt: skip


def test_what_is_written_is_read_again(tmp_path):
    epsilon = mdp.EpsilonMap([[0, 1, 3], [0, 2]], [[0.5], [2.0]])
    write_map(tmp_path / "map.json", epsilon)
    assert read_map(tmp_path / "map.json") == epsilon
    assert json.loads((tmp_path / "map.json").read_text()) == GOOD


@settings(max_examples=60, deadline=None)
@given(
    lon=st.floats(-180, 180), lat=st.floats(-75, 75),
    xs=st.lists(st.floats(-60, 60), min_size=2, max_size=6, unique_by=lambda x: round(x, 3)),
    ys=st.lists(st.floats(-60, 60), min_size=2, max_size=6, unique_by=lambda y: round(y, 3)),
)  # fmt: skip
def test_in_degrees_a_map_covers_the_box_that_it_was_written_for(lon, lat, xs, ys):
    projection = Equirectangular(lon, lat)
    axes = [np.sort(xs), np.sort(ys)]
    values = 0.1 + np.arange((len(xs) - 1) * (len(ys) - 1), dtype=float).reshape(len(xs) - 1, -1)
    epsilon = mdp.EpsilonMap(axes, values)
    document = json.loads(json.dumps(map_as_dict(epsilon, projection)))
    again = map_from_dict(document, projection)
    assert again.covers(epsilon.bounds)
    assert np.array_equal(again.values, epsilon.values)
    for own, other in zip(epsilon.breakpoints, again.breakpoints, strict=True):
        assert np.abs(own - other).max() < 2e-7  # a fifth of a millimetre


def test_degrees_need_a_projection(tmp_path):
    write_map(tmp_path / "map.json", mdp.EpsilonMap([[-1, 1], [-1, 0, 1]], [[1.0, 2.0]]), HERE)
    assert json.loads((tmp_path / "map.json").read_text())["coordinates"] == "lonlat"
    with pytest.raises(mdp.InvalidInputError, match=r"map\.json is in longitude and latitude, and the problem has no"):
        read_map(tmp_path / "map.json")
    assert read_map(tmp_path / "map.json", HERE).shape == (1, 2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"metricdp": "mechanism"}, 'lacks "metricdp": "epsilon map"'),
        ({"format": 2}, "another format; this version reads format 1"),
        ({"format": True}, "another format"),
        ({"coordinates": "degrees"}, "`coordinates` must be 'lonlat' or 'projected'"),
        ({"more": 1}, "its fields must be metricdp, format"),
        ({"breakpoints": 3}, "`breakpoints` must be a list"),
        ({"breakpoints": []}, "`breakpoints` must be a list"),
        ({"breakpoints": [[0, 1, 3], ["0", "2"]]}, r"`breakpoints\[1\]` must be lists of numbers"),
        ({"breakpoints": [[0, 3, 1], [0, 2]]}, r"`breakpoints\[0\]` must be at least two strictly increasing numbers"),
        ({"breakpoints": [[0, 1, 1e999], [0, 2]]}, r"breakpoints\[0\]"),
        ({"values": [[0.5], [True]]}, "values"),
        ({"values": [[0.5], [2, 3]]}, "`values` must be lists of numbers, all of one length"),
        ({"values": [[0.5], [10**400]]}, "values"),
        ({"values": [[0.5], [-2]]}, "`values` must be positive everywhere"),
        ({"values": [[0.5], [0]]}, "`values` must be positive everywhere"),
        ({"values": [[0.5]]}, "`values` must be of shape"),
        ({"values": None}, "`values` must be lists of numbers"),
        ({"coordinates": "lonlat", "breakpoints": [[0, 1, 300], [0, 2]]}, "between -180 and 180"),
    ],
)  # fmt: skip
def test_what_is_no_map_is_refused(tmp_path, change, words):
    text = json.dumps(GOOD | change).replace("Infinity", "1e999")
    (tmp_path / "map.json").write_text(text)
    with pytest.raises(mdp.InvalidInputError, match=words) as refused:
        read_map(tmp_path / "map.json", HERE)
    assert "map.json" in str(refused.value)


@pytest.mark.parametrize(
    "text",
    ['{"metricdp": "epsilon map", "metricdp": "epsilon map"}', "[" * 100_000, '{"values": NaN}', "{", "\xff", ""],
)
def test_what_is_no_json_is_refused(tmp_path, text):
    (tmp_path / "map.json").write_text(text, encoding="latin-1")
    with pytest.raises(mdp.InvalidInputError, match="not valid JSON"):
        read_map(tmp_path / "map.json")


def test_a_file_that_is_too_large_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr("metricdp.files.map_files._LARGEST_BYTES", 50)
    (tmp_path / "map.json").write_text(json.dumps(GOOD))
    with pytest.raises(mdp.InvalidInputError, match="more than 50 bytes"):
        read_map(tmp_path / "map.json")
