"""The kernel: one batch in, one batch out, and nothing of the true points in it but what the mechanism lets through."""

import dataclasses
import decimal
import functools
import json
import math
import struct
import traceback

import hypothesis
import numpy as np
import pyarrow as pa
import pytest
import shapely
from hypothesis import strategies

import metricdp as mdp
from chance_tools import follow
from metricdp.perturb import Counts, Options, Perturbation, perturb_batch, perturb_file, perturb_stream
from perturb_tools import CENTRE, SIDE, city, nearest, noisy_city, plane, points, wkb
from problems import random_problem


def batch(xy, names=("lon", "lat"), **others):
    columns = CENTRE.to_lonlat(xy) if names[0] != "x" else np.asarray(xy)
    return pa.RecordBatch.from_pydict({names[0]: columns[:, 0], names[1]: columns[:, 1], **others})


def ids(answer):
    return answer.column("output_id").fill_null(-1).to_numpy().tolist()


def test_outputs_in_degrees_and_in_kilometres():
    xy = points(1000)
    answer = perturb_batch(city(), batch(xy))
    assert answer.schema.names == ["output_id", "lon", "lat"]
    assert answer.schema.types == [pa.int32(), pa.float64(), pa.float64()]
    assert ids(answer) == nearest(xy).tolist()
    there = CENTRE.to_lonlat(plane().outputs)[nearest(xy)]
    assert np.array_equal(np.column_stack([answer["lon"], answer["lat"]]), there)
    for mechanism in (plane(), city()):
        flat = perturb_batch(mechanism, batch(xy, ("x", "y")))
        assert flat.schema.names == ["output_id", "x", "y"]
        assert np.array_equal(np.column_stack([flat["x"], flat["y"]]), plane().outputs[nearest(xy)])


@pytest.mark.parametrize("n_axes", [1, 3])
def test_other_numbers_of_axes(n_axes):
    mechanism = mdp.fit(random_problem(1, n_axes=n_axes), epsilon=1, method="em")
    names = ["x", "y", "z"][:n_axes]
    given = pa.RecordBatch.from_pydict({name: [0.5, None, 1.5] for name in names})
    answer = perturb_batch(mechanism, given)
    assert answer.schema.names == ["output_id", *names]
    place = answer["output_id"][0].as_py()
    assert [answer[name][0].as_py() for name in names] == mechanism.outputs[place].tolist()
    assert answer["x"][1].as_py() is None
    sensors = pa.RecordBatch.from_pydict({f"sensor {axis}": [1.0] for axis in range(n_axes)})
    assert len(perturb_batch(mechanism, sensors, sensors.schema.names)) == 1


def test_counts_at_one_point_match_the_certified_row():
    """The sum check: 10^6 rows at one point, against the probabilities that `certify` proves private."""
    mechanism = noisy_city()
    assert mdp.certify(mechanism).holds
    count, xy = 1_000_000, np.array([[1.3, 2.1]])
    lonlat = CENTRE.to_lonlat(xy)[0]
    given = pa.table({"lon": np.full(count, lonlat[0]), "lat": np.full(count, lonlat[1])})
    drawn = perturb_stream(mechanism, given).read_all()["output_id"].to_numpy()
    row = mechanism.probabilities(CENTRE.to_xy_km(*lonlat))[0]
    assert follow(np.bincount(drawn, minlength=len(row)), row)
    # Neighbours are independent as well.
    pairs = np.bincount(drawn[::2] * len(row) + drawn[1::2], minlength=len(row) ** 2)
    assert follow(pairs, np.outer(row, row).ravel())


@hypothesis.given(
    strategies.lists(strategies.sampled_from(["point", "null", "half null", "outside", "nan", "inf"]), max_size=40),
    strategies.sampled_from(["clamp", "drop", "error"]),
)
def test_every_row_meets_its_fate(fates, outside):
    lon, lat = CENTRE.to_lonlat([[2.0, 2.0]])[0]
    rows = {
        "point": (lon, lat), "null": (None, None), "half null": (lon, None), "outside": (lon + 1, lat),
        "nan": (lon, float("nan")), "inf": (float("-inf"), lat),
    }  # fmt: skip
    given = pa.RecordBatch.from_pylist(
        [{"row": n, "lon": rows[fate][0], "lat": rows[fate][1]} for n, fate in enumerate(fates)],
        schema=pa.schema({"row": pa.int64(), "lon": pa.float64(), "lat": pa.float64()}),
    )
    perturbation = Perturbation.of(city(), given.schema, Options(copy=["row"], outside=outside))
    bad, beyond = sum(fate in ("nan", "inf") for fate in fates), fates.count("outside")
    if (bad and outside != "drop") or (beyond and outside == "error"):
        rule = f"in {bad:,} rows" if bad else f"{beyond} of {beyond + fates.count('point')} points outside"
        with pytest.raises(mdp.InvalidInputError, match=rule):
            perturbation.draw(given)
        return
    drawn, counts = perturbation.draw(given)
    left = [n for n, fate in enumerate(fates) if outside == "clamp" or fate not in ("outside", "nan", "inf")]
    assert drawn["row"].to_pylist() == left
    assert [value is None for value in drawn["output_id"].to_pylist()] == ["null" in fates[n] for n in left]
    nulls = sum("null" in fate for fate in fates)
    assert dataclasses.replace(counts, swapped=0) == Counts(len(fates), len(left), nulls, beyond, bad)


def test_clamping_takes_points_to_the_box_and_beyond_the_world():
    far = pa.RecordBatch.from_pydict({"lon": [24.94, 500.0, -500.0, 1e300], "lat": [89.0, 95.0, -95.0, -1e300]})
    # Longitudes go round: 500° east are 140° east, and 1e300 is about 104° west.
    west = math.remainder(1e300, 360) < 24.94
    assert ids(perturb_batch(city(), far)) == nearest([[0, 4], [4, 4], [0, 0], [0 if west else 4, 0]]).tolist()


def test_numbers_of_every_type():
    xy = np.array([[3.0, 1.0], [1.0, 3.0]])
    expected = nearest(xy).tolist()
    for kind in (
        pa.int8(),
        pa.uint64(),
        pa.float32(),
        pa.float64(),
        pa.decimal128(5, 2),
        pa.dictionary(pa.int8(), pa.float64()),
    ):
        column = [
            pa.array([decimal.Decimal(v) for v in axis]) if pa.types.is_decimal(kind) else pa.array(axis)
            for axis in xy.T
        ]
        cast = [axis.dictionary_encode() if pa.types.is_dictionary(kind) else axis.cast(kind) for axis in column]
        given = pa.RecordBatch.from_arrays(cast, ["x", "y"])
        assert ids(perturb_batch(plane(), given)) == expected
    nothing = pa.RecordBatch.from_arrays([pa.nulls(3), pa.nulls(3)], ["x", "y"])
    assert ids(perturb_batch(plane(), nothing)) == [-1, -1, -1]
    for kind, value in ((pa.string(), "3.25"), (pa.bool_(), True)):
        words = pa.RecordBatch.from_arrays([pa.array([value], kind)] * 2, ["x", "y"])
        with pytest.raises(mdp.InvalidInputError, match=f"`x` must be a column of numbers, got type {kind}"):
            perturb_batch(plane(), words)


def test_no_rows():
    empty = pa.RecordBatch.from_pydict({"x": pa.array([], pa.float64()), "y": pa.array([], pa.float64())})
    answer = perturb_batch(plane(), empty)
    assert (len(answer), answer.schema.names) == (0, ["output_id", "x", "y"])
    assert perturb_stream(plane(), pa.table(empty)).read_all().num_rows == 0


# -- which columns

GUESSES = [
    (["lon", "lat"], ("lon", "lat")),
    (["id", "Latitude", "LONGITUDE"], ("LONGITUDE", "Latitude")),
    (["lng", "lat", "x", "y"], ("lng", "lat")),
    (["pickup_longitude", "pickup_latitude", "fare"], ("pickup_longitude", "pickup_latitude")),
    (["startLng", "startLat"], ("startLng", "startLat")),
    (["X", "Y"], ("X", "Y")),
    (["x_km", "y_km"], ("x_km", "y_km")),
    (["home lon", "lon", "lat", "home lat"], ("lon", "lat")),
]


@pytest.mark.parametrize(("names", "expected"), GUESSES)
def test_names_are_guessed(names, expected):
    schema = pa.schema([(name, pa.float64()) for name in names])
    found = Perturbation.of(city(), schema).columns
    assert found.names == expected
    assert found.degrees == (expected[0].casefold()[0] != "x")


def test_names_can_be_told():
    xy = points(20)
    given = batch(xy, lon2=[0.0] * 20, x=xy[:, 0], y=xy[:, 1])
    for names, coordinates in ((None, None), (["lon", "lat"], None), (["x", "y"], None), (None, "projected")):
        assert ids(perturb_batch(city(), given, names, coordinates=coordinates)) == nearest(xy).tolist()
    renamed = pa.RecordBatch.from_arrays(given.columns, ["a", "b", "lon2", "c", "d"])
    assert ids(perturb_batch(city(), renamed, ["a", "b"])) == nearest(xy).tolist()
    assert ids(perturb_batch(city(), renamed, ["c", "d"], coordinates="projected")) == nearest(xy).tolist()
    degrees = pa.RecordBatch.from_pydict({"lon": xy[:, 0], "lat": xy[:, 1]})
    assert ids(perturb_batch(plane(), degrees, ["lon", "lat"])) == nearest(xy).tolist()


@pytest.mark.parametrize(
    ("mechanism", "names", "options", "words"),
    [
        (city, ["a", "b"], {}, "`columns` must be named .looked for lon, lat or x, y.*, got a table of a, b"),
        (plane, ["lon", "lat"], {}, "it has no projection"),
        (
            plane,
            ["lon", "lat"],
            {"coordinates": "lonlat", "columns": ["lon", "lat"]},
            "'projected' for a mechanism without",
        ),
        (city, ["start_lon", "end_lon", "lat"], {}, "several could be meant, got start_lon, end_lon"),
        (city, ["lon", "lat"], {"columns": ["lon"]}, "one name per axis, 2 in all"),
        (city, ["lon", "lat"], {"columns": ["lon", "north"]}, "among the columns lon, lat, got 'north'"),
        (
            city,
            ["lon", "lon", "lat"],
            {"columns": ["lon", "lat"]},
            "Column 'lon' appears 2 times; `columns` needs unique names",
        ),
        (city, ["lon", "lat"], {"coordinates": "utm"}, "`coordinates` must be one of"),
        (city, ["lon", "lat"], {"outside": "keep"}, "`outside` must be one of"),
        (city, ["lon", "lat"], {"copy": ["time"]}, "`copy` must be among the columns"),
        (city, ["lon", "lat"], {"copy": ["lat"]}, "`keep_input` copies these"),
        (city, ["lon", "lat"], {"copy": "some"}, "`copy` must be one of 'all'"),
        (city, ["24.9401", "60.1702"], {}, "got a table of …, …"),
    ],
)
def test_what_cannot_be_guessed(mechanism, names, options, words):
    schema = pa.schema([(name, pa.float64()) for name in names])
    with pytest.raises(mdp.InvalidInputError, match=words):
        Perturbation.of(mechanism(), schema, Options(**options))


def test_other_columns_are_copied_only_if_asked_for():
    given = batch(
        points(3),
        id=["a", "b", None],
        address=["here", "there", "x"],
        home_lat=[1.0, 2.0, 3.0],
        kind=pa.array(["u", "v", "u"]).dictionary_encode(),
        tags=[[1], [], None],
    ).replace_schema_metadata({"pandas": "secret", "geo": '{"columns": {}}'})
    assert perturb_batch(city(), given).schema.names == ["output_id", "lon", "lat"]
    answer = perturb_batch(city(), given, copy="all")
    # Types decide, names do not: what may be a place in numbers or text is the caller's to know.
    assert answer.schema.names == ["output_id", "lon", "lat", "id", "address", "home_lat", "kind"]
    assert answer.schema.metadata is None
    assert answer["id"].to_pylist() == ["a", "b", None]
    assert answer.schema.field("kind").type == pa.string()
    assert answer["kind"].to_pylist() == ["u", "v", "u"]
    named = perturb_batch(city(), given, copy=["home_lat", "id", "tags"])
    assert named.schema.names == ["output_id", "lon", "lat", "home_lat", "id", "tags"]
    assert named["tags"].to_pylist() == [[1], [], None]
    with pytest.raises(mdp.InvalidInputError, match="whose names are not those of the output, got output_id"):
        perturb_batch(city(), batch(points(1), output_id=[3]), copy=["output_id"])


def test_true_coordinates_are_kept_only_if_asked_for():
    xy = points(4)
    given = batch(xy, ("longitude", "latitude"))
    answer = perturb_batch(city(), given, keep_input=True)
    assert answer.schema.names == ["output_id", "lon", "lat", "true_longitude", "true_latitude"]
    assert answer["true_latitude"].equals(given["latitude"])


def test_most_points_outside_raise_a_warning():
    xy = np.vstack([points(91), points(9)])
    lonlat = CENTRE.to_lonlat(xy)
    lonlat[:91] = lonlat[:91, ::-1]
    swapped = pa.table({"lon": lonlat[:, 0], "lat": lonlat[:, 1]})
    with pytest.warns(UserWarning, match="^91 % of points fall outside the box; are columns swapped.$"):
        perturb_stream(city(), swapped).read_all()
    elsewhere = pa.table({"lon": lonlat[91:, 0] + 20, "lat": lonlat[91:, 1]})
    with pytest.warns(UserWarning, match="^100 % of points fall outside the box; is it the right mechanism"):
        perturb_stream(city(), elsewhere).read_all()
    with pytest.raises(mdp.InvalidInputError, match=r"got 91 of 100 points outside \(91 % .* swapped\?\)"):
        perturb_stream(city(), swapped, outside="error").read_all()
    # The corner of the box is inside, whatever rounding does to it.
    corner = perturb_stream(city(), pa.table(batch([[SIDE, SIDE], [0, 0]])), outside="error").read_all()
    assert len(corner) == 2


# -- what can be chosen is declared once


def test_options_are_the_same_for_batches_streams_and_files(tmp_path):
    given = batch(points(3), id=[1, 2, 3])
    (tmp_path / "in.arrow").write_bytes(b"")
    with pa.OSFile(str(tmp_path / "in.arrow"), "wb") as file, pa.ipc.new_file(file, given.schema) as writer:
        writer.write_batch(given)
    chosen = {"columns": ["lon", "lat"], "coordinates": "lonlat", "copy": ["id"], "outside": "drop", "keep_input": True}
    assert {field.name for field in dataclasses.fields(Options)} == {*chosen, "user_column", "time_column", "encoding"}
    assert Options(**chosen) == Options(**{**chosen, "columns": ("lon", "lat"), "copy": ("id",)})
    perturb_file(city(), tmp_path / "in.arrow", tmp_path / "out.arrow", Options(**chosen))
    answers = [
        pa.table(perturb_batch(city(), given, **chosen)),
        perturb_stream(city(), pa.table(given), **chosen).read_all(),
        pa.ipc.open_file(tmp_path / "out.arrow").read_all(),
    ]
    assert all(answer.equals(answers[0]) for answer in answers)
    for function in (perturb_batch, perturb_stream):
        with pytest.raises(TypeError, match="'outsid'"):
            function(city(), given, outsid="drop")
        with pytest.raises(mdp.InvalidInputError, match="`user_column` says whose budget is spent, which needs a"):
            function(city(), pa.table(given) if function is perturb_stream else given, user_column="id")


def test_raise_is_the_old_word_for_error():
    with pytest.warns(DeprecationWarning, match='`outside="raise"` is now called `outside="error"`') as warned:
        assert Options(outside="raise").outside == "error"
    assert warned[0].filename == __file__


# -- geometries


def geometry_batch(values, kind=None, metadata=None, name="geometry"):
    kind = kind or pa.binary()
    return pa.RecordBatch.from_arrays(
        [pa.array(values, kind)], schema=pa.schema([pa.field(name, kind, metadata=metadata)])
    )


GEOARROW = {"ARROW:extension:name": "geoarrow.wkb", "ARROW:extension:metadata": '{"crs": "OGC:CRS84"}'}


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_geometries_in_well_known_binary(kind):
    xy = points(9)
    lonlat = CENTRE.to_lonlat(xy)
    values = [wkb(*p) for p in lonlat[:3]]
    values += [wkb(*lonlat[3], order=">"), wkb(*lonlat[4], code=1001, extra=bytes(8))]
    values += [wkb(*lonlat[5], code=0x20000001, system=struct.pack("<I", 4326))]
    values += [
        shapely.to_wkb(shapely.Point(*lonlat[6], 7.0)),
        shapely.to_wkb(shapely.Point(*lonlat[7], 1), flavor="iso"),
    ]
    values += [shapely.to_wkb(shapely.Point(*lonlat[8]), byte_order=0)]
    values += [None, shapely.to_wkb(shapely.Point())]
    given = geometry_batch(values, kind, GEOARROW)
    answer = perturb_batch(city(), given)
    assert ids(answer) == [*nearest(xy).tolist(), -1, -1]
    assert ids(perturb_batch(city(), given.slice(2, 8))) == [*nearest(xy).tolist()[2:], -1]
    there = shapely.from_wkb(answer["geometry"].to_pylist())
    assert np.array_equal(shapely.get_coordinates(there[:9]), CENTRE.to_lonlat(plane().outputs)[nearest(xy)])
    assert there[9] is None
    note = answer.schema.field("geometry").metadata
    assert note[b"ARROW:extension:name"] == b"geoarrow.wkb"
    assert json.loads(answer.schema.metadata[b"geo"])["columns"]["geometry"] == {
        "encoding": "WKB", "geometry_types": ["Point"], "crs": "OGC:CRS84",
    }  # fmt: skip


def test_geometries_as_structs():
    lonlat = CENTRE.to_lonlat(points(3))
    kind = pa.struct([("x", pa.float64()), ("y", pa.float64())])
    values = [{"x": x, "y": y} for x, y in lonlat] + [None, {"x": float("nan"), "y": float("nan")}]
    answer = perturb_batch(city(), geometry_batch(values, kind, {"ARROW:extension:name": "geoarrow.point"}))
    assert ids(answer) == [*nearest(points(3)).tolist(), -1, -1]
    with pytest.raises(mdp.InvalidInputError, match="`where` must be points only"):
        perturb_batch(city(), geometry_batch([{"a": 1}], pa.struct([("a", pa.int8())]), name="where"), ["where"])


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"\x01",
        wkb(24.9401, 60.17)[:-1],
        wkb(24.9401, 60.17, code=2),
        b"\x07" * 21,
        shapely.to_wkb(shapely.box(0, 0, 1, 1)),
    ],
)
def test_geometries_that_are_no_points(bad):
    given = geometry_batch([wkb(24.9401, 60.17), bad, None, bad], metadata=GEOARROW)
    with pytest.raises(
        mdp.InvalidInputError, match=r"`geometry` must be points only, got 2 others, the first in row 2\."
    ) as caught:
        perturb_batch(city(), given)
    assert "24.94" not in "".join(traceback.format_exception(caught.value))


def test_geometries_in_metres_are_refused():
    for system, name in (('"EPSG:3067"', "EPSG:3067"), ('{"type": "ProjectedCRS", "name": "TM35FIN"}', "TM35FIN")):
        note = {**GEOARROW, "ARROW:extension:metadata": f'{{"crs": {system}}}'}
        with pytest.raises(mdp.InvalidInputError, match=f"longitude and latitude, got the reference system '{name}'"):
            perturb_batch(city(), geometry_batch([wkb(1, 2)], metadata=note))
    geographic = {**GEOARROW, "ARROW:extension:metadata": '{"crs": {"type": "GeographicCRS", "name": "WGS 84"}}'}
    assert len(perturb_batch(city(), geometry_batch([wkb(24.94, 60.17)], metadata=geographic))) == 1


# -- people


def test_a_ledger_draws_in_the_mechanisms_place(tmp_path):
    people = ["ann", "bob", "ann", "ann", None]
    lonlat = CENTRE.to_lonlat(points(5)).T.tolist()
    given = pa.RecordBatch.from_pydict({"lon": [*lonlat[0][:4], None], "lat": lonlat[1], "person": people})
    with mdp.Ledger(tmp_path / "budgets.db", max_epsilon=800) as ledger:
        perturbation = Perturbation.of(
            city(),
            given.schema,
            Options(user_column="person"),
            sampler=lambda xy, users: ledger.sample(city(), users, xy),
        )
        drawn, counts = perturbation.draw(given)
        assert ledger.spent("ann") == pytest.approx(2 * city().claimed_epsilon, rel=1e-9)
    assert ids(drawn) == [*nearest(points(5)).tolist()[:3], -1, -1]
    assert (counts.refused, counts.nulls, counts.rows_out) == (1, 1, 5)
    nobody = pa.RecordBatch.from_pydict({"lon": [24.94] * 5, "lat": [60.17] * 5, "person": people})
    with pytest.raises(mdp.InvalidInputError, match="null in 1 rows, the first of them row 5"):
        perturbation.draw(nobody)


# -- noise, which has no list of outputs


@functools.cache
def noise():
    return mdp.noise(epsilon=20, bounds=[[0.0, 0.0], [SIDE, SIDE]], projection=CENTRE)


def test_noise_reports_places():
    xy = np.repeat([[2.0, 2.0]], 20_000, axis=0)
    answer = perturb_batch(noise(), batch(xy, id=np.arange(len(xy))), copy=["id"])
    assert answer.schema.names == ["lon", "lat", "id"]
    there = CENTRE.to_xy_km(answer["lon"], answer["lat"])
    # The mean distance of planar Laplace noise is 2/ε; the map makes ε a little smaller.
    assert np.linalg.norm(there - 2.0, axis=1).mean() == pytest.approx(2 / 20, rel=0.05)
    assert len(np.unique(there, axis=0)) > 19_000


def test_noise_gives_geometries_and_keeps_gaps():
    shapes = [wkb(24.95, 60.18), None, wkb(24.96, 60.19)]
    given = geometry_batch(shapes, metadata=GEOARROW)
    answer = perturb_batch(noise(), given)
    assert answer.schema.names == ["geometry"]
    assert [value is None for value in answer["geometry"].to_pylist()] == [False, True, False]
    assert shapely.from_wkb(answer["geometry"][0].as_py()).distance(shapely.Point(24.95, 60.18)) < 0.1


def test_noise_has_no_ledger():
    perturbation = Perturbation.of(noise(), batch(points(2)).schema)
    with pytest.raises(mdp.InvalidInputError, match="only for mechanisms with outputs"):
        dataclasses.replace(perturbation, sampler=lambda xy, users: np.zeros(len(xy)))
