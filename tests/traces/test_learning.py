"""Movement models from traces, from roads and from files."""

import itertools
import json
import zipfile

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import metricdp as mdp
from metricdp.traces import Movement, Raster
from metricdp.traces.learning import read_traces, resampled
from metricdp.traces.roads import disc_kernel
from traces_tools import small_movement

BOX = [[24.90, 60.15], [25.00, 60.20]]


def walks(n_traces=6, n_fixes=200, seed=0, every_s=20.0):
    """Public traces: people who wander about a few favourite corners."""
    rng = np.random.default_rng(seed)
    steps = rng.normal(0, 0.0006, (n_traces, n_fixes, 2))
    lonlat = np.clip(rng.uniform(*BOX, (n_traces, 1, 2)) + steps.cumsum(axis=1), *BOX)
    times = 1.7e9 + every_s * np.arange(n_fixes)
    return pd.DataFrame(
        {
            "id": np.repeat([f"taxi {i}" for i in range(n_traces)], n_fixes),
            "unix_s": np.tile(times, n_traces),
            "lon": lonlat[..., 0].ravel(),
            "lat": lonlat[..., 1].ravel(),
        }
    )


def same(first, second):
    assert np.array_equal(first.prior, second.prior)
    assert first.lags_s == second.lags_s
    for one, other in zip(first.kernels, second.kernels, strict=True):
        assert np.array_equal(one, other)


# Learning


def interpolated(table, seconds, longest_gap_s):
    """Positions at multiples of `seconds` between fixes that are close in time, by loops: {(id, tick): (lon, lat)}."""
    found = {}
    for who, fixes in table.groupby("id"):
        rows = fixes.sort_values("unix_s")[["unix_s", "lon", "lat"]].to_numpy()
        for (start, *here), (end, *there) in itertools.pairwise(rows):
            for tick in range(int(start // seconds) + 1, int(end // seconds) + 1):
                if 0 < end - start <= longest_gap_s:
                    share = (tick * seconds - start) / (end - start)
                    found[who, tick] = np.array(here) + share * (np.array(there) - here)
    return found


@pytest.mark.parametrize("seconds", [60, 25, 45.5])
def test_counts_are_those_of_loops_over_positions(seconds):
    table = walks(seed=1).iloc[::2]
    table["unix_s"] += np.random.default_rng(2).uniform(-15, 15, len(table)).round(1)
    movement = Movement.fit(table, seconds=seconds, cell_km=0.5, bounds=BOX, longest_s=4 * seconds, longest_gap_s=50)
    raster, places = movement.raster, interpolated(table, seconds, 50)
    counts = np.zeros(raster.n_cells)
    for place in places.values():
        cell = raster.cells_of(raster.to_plane(place[None]))[0]
        counts[cell] += cell >= 0
    assert np.allclose(movement.prior, 0.98 * counts / counts.sum() + 0.02 / raster.n_cells)
    assert movement.lags_s == tuple(seconds * lag for lag in (1, 2, 4))
    for lag, kernel in zip((1, 2, 4), movement.kernels, strict=True):
        expected, pairs = np.zeros_like(kernel), 0
        middle = np.array(kernel.shape) // 2
        for (who, tick), place in places.items():
            if (other := places.get((who, tick + lag))) is None:
                continue
            ends = raster.to_plane([place, other])
            if (raster.cells_of(ends) < 0).any():
                continue
            pairs += 1
            moved = (ends[1] - ends[0]) / raster.cell_km
            low = np.floor(moved).astype(int)
            for corner in np.ndindex(2, 2):
                share = np.abs(1 - np.array(corner) - (moved - low)).prod()
                if share > 0:
                    expected[tuple(middle + low + corner)] += share
        expected[tuple(middle)] += 1e-4 * pairs
        assert np.allclose(kernel, expected / expected.sum())


def test_tables_of_every_kind_and_in_any_order_are_the_same_traces():
    table = walks()
    expected = Movement.fit(table, cell_km=0.3)
    shuffled = table.sample(frac=1, random_state=0).rename(columns={"lon": "longitude", "lat": "Lat"})
    stamped = table.assign(unix_s=pd.to_datetime(table["unix_s"], unit="s"))
    zoned = table.assign(unix_s=pd.to_datetime(table["unix_s"], unit="s", utc=True))
    numbered = table.assign(id=table["id"].astype("category"))
    for given in (
        shuffled,
        stamped,
        zoned,
        numbered,
        pl.from_pandas(table),
        pa.Table.from_pandas(table),
        table.to_dict("list"),
    ):
        found = Movement.fit(given, cell_km=0.3)
        assert np.allclose(found.prior, expected.prior, atol=1e-12)
        assert found.lags_s == expected.lags_s
        for one, other in zip(found.kernels, expected.kernels, strict=True):
            assert np.allclose(one, other, atol=1e-9)
    renamed = table.rename(columns={"id": "taxi", "unix_s": "t"})
    same(Movement.fit(renamed, cell_km=0.3, id_column="taxi", time_column="t"), expected)


def test_chunks_with_dictionaries_of_their_own_are_one_table():
    table = walks(4)
    halves = [
        pa.Table.from_pandas(table.iloc[part].astype({"id": "category"})) for part in (slice(0, 500), slice(500, None))
    ]
    halves = [half.set_column(0, "id", half["id"].cast(pa.string()).dictionary_encode()) for half in halves]
    found, expected = Movement.fit(pa.concat_tables(halves[::-1]), cell_km=0.3), Movement.fit(table, cell_km=0.3)
    assert np.allclose(found.prior, expected.prior)
    assert np.allclose(found.kernels[0], expected.kernels[0])


def test_traces_are_not_joined_across_gaps_or_persons():
    table = pd.DataFrame(
        {
            "id": ["a", "a", "a", "b", "b"],
            "unix_s": [0, 60, 1000, 1060, 1120],
            "lon": [24.91, 24.92, 24.95, 24.97, 24.98],
            "lat": [60.16] * 5,
        }
    )
    raster = Raster.over([[-3, -3], [3, 3]], 0.5, mdp.cities.Equirectangular(24.95, 60.175))
    positions = resampled(read_traces(table), raster, 60, 180)
    # Multiples of 60 s after a fix and up to the next one: 60 s of a, 1080 s of b.
    assert positions.trace.tolist() == [0, 1]
    assert positions.tick.tolist() == [1, 18]


def test_a_stationary_model_predicts_its_prior():
    """After many steps the model's own movement is nearly where the traces are: attraction does not pile up."""
    movement = Movement.fit(walks(40, 400, seed=3), cell_km=0.5)
    belief = movement.prior
    for _ in range(100):
        belief = movement.predict(belief, 60)
    assert np.abs(belief - movement.prior).sum() < 0.5


def test_lags_that_no_trace_lasts_are_left_out():
    movement = Movement.fit(walks(n_fixes=31), cell_km=0.3, longest_s=86_400)  # 600 s
    assert movement.lags_s == (60, 120, 240, 480)
    assert Movement.fit(walks(), seconds=60, longest_s=10, cell_km=0.3).lags_s == (60,)


def test_the_box_is_the_callers_or_that_of_the_fixes():
    table = walks()
    everywhere = Movement.fit(table, cell_km=0.3).raster
    assert (everywhere.cells_of(everywhere.to_plane(table[["lon", "lat"]])) >= 0).all()
    inner = Movement.fit(table, cell_km=0.3, bounds=[[24.93, 60.16], [24.97, 60.19]]).raster
    low, high = inner.from_plane(inner.bounds)
    assert np.allclose(low, [24.93, 60.16], atol=0.004)
    assert np.allclose(high, [24.97, 60.19], atol=0.004)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"drop": "id"}, "a table with one column 'id', got a table of unix_s, lon, lat"),
        ({"drop": "lat"}, "columns of longitude and latitude"),
        ({"lat": 91.0}, "latitudes within ±90 degrees, got 1 of 1,200 rows outside"),
        ({"lon": np.nan}, "`lon` must be finite everywhere, got nan at index"),
        ({"unix_s": np.inf}, "`unix_s` must be finite everywhere"),
        ({"unix_s": np.nan}, "unix_s|missing times"),
        ({"unix_s": 1.7e12}, "`unix_s` must be seconds since 1970, .*are they milliseconds"),
        ({"id": None}, "without missing values in column 'id', got 1 of them"),
    ],
)
def test_bad_tables_are_refused(change, words):
    table = walks()
    for name, value in change.items():
        if name == "drop":
            table = table.drop(columns=value)
        else:
            table.loc[7, name] = value
    with pytest.raises(mdp.InvalidInputError, match=words):
        Movement.fit(table, cell_km=0.3)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"seconds": 0}, "`seconds` must be a positive finite number, got 0"),
        ({"cell_km": -1}, "`cell_km` must be a positive finite number, got -1"),
        ({"cell_km": 1e-6}, "cells are more than 1,048,576; take a larger `cell_km`"),
        ({"longest_gap_s": 10}, "No trace passes through the box"),
        ({"bounds": [[12.2, 41.6], [12.8, 42.1]]}, "No trace passes through the box; check `bounds`"),
        ({"bounds": [[24.9, 60.2], [25.0, 60.1]]}, "`bounds` must be west and south"),
        ({"seconds": 86_400}, "No trace"),
        ({"seconds": 1e-6}, "positions of these traces, too many to learn from; raise `seconds`"),
        ({"seconds": 1e-300}, "too many to be counted; raise `seconds`"),
        ({"longest_s": np.nan}, "`longest_s` must be"),
    ],
)
def test_bad_options_are_refused(options, words):
    with pytest.raises(mdp.InvalidInputError, match=words):
        Movement.fit(walks(), **({"cell_km": 0.3} | options))


@pytest.mark.parametrize("given", [[[1, 2]], "traces.csv", None, np.zeros((3, 4))])
def test_what_is_no_table_is_refused(given):
    with pytest.raises(mdp.InvalidInputError, match="`table` must be a table of pandas, polars or Arrow"):
        Movement.fit(given)


def test_an_empty_table_is_refused():
    with pytest.raises(mdp.InvalidInputError, match="`table` must be non-empty, got no rows"):
        Movement.fit(walks().iloc[:0])


# Roads


def test_roads_and_a_speed():
    city = mdp.cities.load("helsinki")
    movement = Movement.from_roads(city, speed_km_h=36, seconds=30, cell_km=0.1)
    raster = movement.raster
    assert (raster.cells_of(city.xy) >= 0).all()
    busy = np.bincount(raster.cells_of(city.xy), minlength=raster.n_cells)
    assert np.corrcoef(busy, movement.prior)[0, 1] > 0.7
    # 300 m in 30 s: nobody is further away, but for those who restart.
    start = raster.n_cells // 2 + raster.shape[1] // 2
    belief = np.zeros(raster.n_cells)
    belief[start] = 1
    there = movement.predict(belief, 30) - movement.restart * movement.prior
    away = np.hypot(*(raster.centres - raster.centres[start]).T)
    assert there[away > 0.3 + 0.15].max() < 1e-12
    assert there[away < 0.2].min() > 1e-6
    assert there[start] > 0.25


def test_a_problem_stands_for_roads():
    problem = mdp.cities.load("helsinki").problem(outputs=5, tasks=5, seed=0)
    movement = Movement.from_roads(problem, cell_km=0.2)
    cells = movement.raster.cells_of(problem.records)
    mass = np.bincount(cells[cells >= 0], problem.prior[cells >= 0], minlength=movement.raster.n_cells)
    assert np.allclose(movement.prior, 0.9 * mass / mass.sum() + 0.1 / len(mass))


@pytest.mark.parametrize("reach_km", [0.01, 0.1, 0.37, 1.0])
def test_discs_are_even_and_symmetric(reach_km):
    kernel = disc_kernel(Raster([0, 0], 0.2, (30, 20)), reach_km, 0.3)
    assert kernel.sum() == pytest.approx(1)
    assert np.allclose(kernel, kernel[::-1]) and np.allclose(kernel, kernel[:, ::-1])
    moved = kernel.copy()
    moved[kernel.shape[0] // 2, kernel.shape[1] // 2] -= 0.3
    assert moved.max() == pytest.approx(0.7 * min(1, 0.04 / (np.pi * max(reach_km, 0.1) ** 2)), rel=0.35)


def test_bad_roads_are_refused():
    with pytest.raises(mdp.InvalidInputError, match="`roads` must be a road network"):
        Movement.from_roads("helsinki")
    flat = mdp.Problem([[0.0, 0.0], [1.0, 1.0]], [[0.0, 0.0]], "euclidean")
    with pytest.raises(mdp.InvalidInputError, match="no projection"):
        Movement.from_roads(flat)
    city = mdp.cities.load("helsinki")
    for options in ({"speed_km_h": 0}, {"pause": 1}, {"cell_km": 0}, {"seconds": -1}):
        with pytest.raises(mdp.InvalidInputError, match=f"`{next(iter(options))}` must be"):
            Movement.from_roads(city, **options)


# Files


def test_a_saved_model_is_the_same(tmp_path):
    learned = Movement.fit(walks(), cell_km=0.3, exponent=0.4, restart=0.02)
    for movement in (learned, small_movement(lags_s=(60, 120))):
        movement.save(tmp_path / "movement.zip")
        again = Movement.load(tmp_path / "movement.zip")
        assert (again.exponent, again.restart) == (movement.exponent, movement.restart)
        assert again.lags_s == movement.lags_s
        assert again.raster.projection == movement.raster.projection
        assert again.raster.shape == movement.raster.shape
        assert np.array_equal(again.raster.corner, movement.raster.corner)
        logs = np.random.default_rng(0).normal(0, 1, (3, movement.raster.n_cells))
        assert np.allclose(again.filter(logs), movement.filter(logs), atol=1e-14)
    assert [path.name for path in tmp_path.iterdir()] == ["movement.zip"]


def rewritten(path, change):
    """Change the header of a file and write it again."""
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    header = json.loads(entries["header.json"])
    change(header, entries)
    entries["header.json"] = json.dumps(header).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)


@pytest.mark.parametrize(
    "change",
    [
        lambda header, entries: header.update(format=2),
        lambda header, entries: header.update(kind="mechanism"),
        lambda header, entries: header.update(more=1),
        lambda header, entries: header.pop("lags_s"),
        lambda header, entries: header.update(shape=[3, 4]),
        lambda header, entries: header.update(shape=[10**9, 10**9]),
        lambda header, entries: header.update(shape=9),
        lambda header, entries: header.update(cell_km="0.5"),
        lambda header, entries: header.update(cell_km=-1),
        lambda header, entries: header.update(corner=[0, float("nan")]),
        lambda header, entries: header.update(exponent=2),
        lambda header, entries: header.update(restart=0),
        lambda header, entries: header.update(lags_s=[60, 60]),
        lambda header, entries: header.update(lags_s=list(range(1, 10**5))),
        lambda header, entries: header.update(projection={"kind": "mercator"}),
        lambda header, entries: header.update(projection="\x1b[2J"),
        lambda header, entries: entries.update({"kernel_7.npy": entries["kernel_0.npy"]}),
        lambda header, entries: entries.pop("prior.npy"),
        lambda header, entries: entries.update({"prior.npy": entries["kernel_0.npy"]}),
    ],
)
def test_forged_files_are_refused(change, tmp_path):
    path = tmp_path / "movement.zip"
    small_movement(lags_s=(60, 120)).save(path)
    rewritten(path, lambda header, entries: None)
    Movement.load(path)
    rewritten(path, change)
    with pytest.raises(mdp.InvalidInputError, match="is not a movement model that can be read") as refused:
        Movement.load(path)
    assert str(refused.value).isprintable()


def test_damaged_and_missing_files(tmp_path):
    path = tmp_path / "movement.zip"
    with pytest.raises(FileNotFoundError):
        Movement.load(path)
    small_movement().save(path)
    whole = path.read_bytes()
    for length in (0, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(mdp.InvalidInputError, match="is not a movement model"):
            Movement.load(path)
