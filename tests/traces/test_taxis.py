"""Real taxis: movement learned from some, reports of others."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import metricdp as mdp
from metricdp.traces import Movement, smooth, track
from metricdp.traces.learning import read_traces, resampled

REPORTS, TRIPS = 24, 120


@pytest.fixture(scope="module")
def taxis():
    path = Path(os.environ.get("METRICDP_DATA", ""), "san-francisco-taxis", "traces.csv.xz")
    if not path.is_file():
        pytest.skip("needs the folder `san-francisco-taxis` where METRICDP_DATA points")
    return pd.read_csv(path).rename(columns={"taxi": "id"})


@pytest.mark.slow
@pytest.mark.parametrize(("step_s", "gain"), [(60, 0.3), (300, 0.08)])
def test_history_makes_taxis_reports_better(taxis, step_s, gain):
    half = 8 / mdp.cities.Equirectangular(-122.42, 37.77).km_per_degree
    box = np.array([-122.42, 37.77]) + np.array([-half, half])
    movement = Movement.fit(taxis[taxis["id"] < 20], step_s, 0.2, bounds=box)
    raster = movement.raster
    path = resampled(read_traces(taxis[taxis["id"] >= 20]), raster, step_s, 180)
    inside = raster.cells_of(path.xy_km) >= 0
    apart = (np.diff(path.trace) != 0) | (np.diff(path.tick) != 1) | ~inside[1:] | ~inside[:-1]
    runs = np.split(np.arange(len(inside)), np.flatnonzero(apart) + 1)
    starts = [run[first] for run in runs for first in range(0, len(run) - REPORTS + 1, REPORTS)]
    chosen = np.random.default_rng(1).choice(starts, TRIPS, replace=False)
    truth = path.xy_km[(chosen[:, None] + np.arange(REPORTS)).ravel()]
    noise = mdp.noise(1.0, lonlat_bounds=box)
    reports = np.asarray(noise.sample_lonlat(raster.from_plane(truth), mdp.InsecureSeed(2)))
    unix_s, trip = np.tile(step_s * np.arange(REPORTS), TRIPS), np.repeat(np.arange(TRIPS), REPORTS)

    def error(estimates):
        return np.hypot(*(raster.to_plane(estimates) - truth).T).mean()

    static = error(track(noise, movement, reports, unix_s, ids=np.arange(len(reports))))
    filtered = error(track(noise, movement, reports, unix_s, ids=trip))
    assert static < 0.8 * error(reports)
    assert filtered < (1 - gain) * static
    assert error(smooth(noise, movement, reports, unix_s, ids=trip)) < 0.95 * filtered
