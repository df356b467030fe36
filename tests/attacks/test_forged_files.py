"""Whatever `load` accepts is private: forged files with fresh hashes, judged in fractions between arbitrary points."""

import collections
import math
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

import metricdp as mdp
from forging import FORGERS, GEOD_ERROR_KM, Judge, centred, header_of, sealed
from metricdp.mechanisms.spline.integer_rows import fineness
from metricdp.mechanisms.spline.slopes import windows
from problems import random_problem

PAIRS = 24


def verdict(path, header, arrays, rng):
    """Load a forged file; whatever is accepted must keep its claim at every pair that the judge looks at."""
    path.write_bytes(sealed(header, arrays))
    try:
        mechanism = mdp.load(path)
    except mdp.NotCertified:
        return "refused by the proof"
    except mdp.InvalidInputError:
        return "refused by the reader"
    certificate = mdp.certify(mechanism)
    epsilon, rounding = mechanism.epsilon, mechanism.rounding
    if certificate.metres is not None:
        epsilon, rounding = certificate.metres.epsilon_per_km, certificate.metres.rounding_mm / 1e6
        assert epsilon >= float(header["epsilon"]) or mechanism.distance == "plane"
    # The claim must say something: millimetres in kilometres, a millionth of the box, or a ratio that is nothing.
    n_axes = mechanism.bounds.shape[1]
    assert rounding <= 4.1 * 2.0**-20 * n_axes ** (1 / mechanism.p) or epsilon * rounding < 1e-6
    judge = Judge(header, arrays)
    for here, there in zip(*judge.pairs(rng, PAIRS), strict=True):
        allowed = epsilon * (judge.distance(here, there) + rounding + (judge.projection is not None) * GEOD_ERROR_KM)
        for one, other in ((here, there), (there, here)):
            assert judge.log_ratio(one, other) <= allowed * (1 + 1e-12), (header, here, there)
    return "accepted"


def verdicts(count, seed, folder):
    rng = np.random.default_rng(seed)
    counts = collections.Counter()
    for number in range(count):
        kind = list(FORGERS)[number % len(FORGERS)]
        counts[kind, verdict(folder / "forged.mdp", *FORGERS[kind](rng), rng)] += 1
    return counts


def totals(counts):
    return {what: sum(n for (_, result), n in counts.items() if result == what) for _, what in counts}


def test_whatever_is_loaded_keeps_its_claim(tmp_path):
    counts = verdicts(150, 0, tmp_path)
    found = totals(counts)
    assert found["accepted"] >= 30
    assert found["refused by the proof"] >= 30


@pytest.mark.slow
def test_two_thousand_forged_files(tmp_path):
    counts = verdicts(2000, 1, tmp_path)
    found = totals(counts)
    assert found["accepted"] >= 400
    assert found["refused by the proof"] >= 400
    for kind in FORGERS:
        assert counts[kind, "accepted"] >= 20, counts
        assert counts[kind, "refused by the proof"] >= 20, counts
    print(dict(counts))


def jump_file(step, epsilon=0.01, n_cells=2):
    """Return a spline whose rows change a lot from one lattice point to the next, with a lattice as wide as its cells."""
    side = n_cells * step
    box = np.array([[0.0, 0.0], [side, side]])
    breaks = np.arange(n_cells + 1) * step
    shape = n_cells + 1
    total = 4 << 40
    corner = np.stack(np.meshgrid(np.arange(shape), np.arange(shape), indexing="ij"), axis=-1).reshape(-1, 2) / n_cells
    rows = np.exp(np.stack([(2 * corner - 1) @ sign for sign in ((-3, -3), (-3, 3), (3, -3), (3, 3))], axis=1))
    weights = np.maximum(np.floor(rows / rows.sum(axis=1, keepdims=True) * total).astype(np.int64), 1)
    weights[:, 0] += total - weights.sum(axis=1)
    settings = {"degree": 1, "step": step}
    grid = {"cells": [n_cells, n_cells], "degree": 1}
    arrays = {"outputs": np.array([[0.0, 0], [0, side], [side, 0], [side, side]]), "table": weights}
    arrays |= {"breakpoints_0": breaks, "breakpoints_1": breaks}
    return header_of("spline", "spline", epsilon, 2.0, box, None, False, settings, grid), arrays


@pytest.mark.parametrize("step", [2.0**14, 1.0, 2.0**-10, 2.0**-19])
def test_a_coarse_lattice_is_no_proof(step, tmp_path):
    """Two people millimetres apart are rounded to different corners of a cell: a jump, however exact the proof."""
    header, arrays = jump_file(step, epsilon=20 / step)
    (tmp_path / "m.mdp").write_bytes(sealed(header, arrays))
    with pytest.raises(mdp.InvalidInputError, match="step"):
        mdp.load(tmp_path / "m.mdp", certify=False)


def test_the_proof_itself_refuses_a_coarse_lattice():
    """Not only the reader: a mechanism put together in Python is refused too."""
    problem = mdp.Problem(
        np.random.default_rng(0).random((40, 2)) * 4, np.eye(2) * 4, "euclidean", bounds=[[0, 0], [4, 4]]
    )
    mechanism = mdp.fit(problem, 1.0, "spline", cells=2)
    assert mdp.certify(mechanism).holds
    found = mdp.certify(replace(mechanism, step=1.0))
    assert not found.holds
    assert "too coarse" in found.claim


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": -1.0},
        {"epsilon": math.inf},
        {"epsilon": math.nan},
        {"epsilon": "1.0"},
        {"epsilon": True},
        {"p": math.nan},
        {"p": 0.5},
        {"p": "2"},
        {"bounds": np.array([[4.0, 4.0], [0.0, 0.0]])},
        {"bounds": np.full((2, 2), math.nan)},
    ],
    ids=str,
)
@pytest.mark.parametrize("method", ["em", "spline"])
def test_numbers_that_make_no_claim_are_no_proof(method, change):
    """Not only the reader looks: in Python a mechanism may be put together of anything."""
    options = {} if method == "em" else {"cells": 2}
    mechanism = mdp.fit(random_problem(0, n_outputs=3), 1.0, method, **options)
    assert mdp.certify(mechanism).holds
    assert not mdp.certify(replace(mechanism, **change)).holds


@pytest.mark.parametrize("rate", [-1000.0, math.nan, math.inf, 0.0])
def test_a_negative_rate_is_no_small_one(rate):
    """With a rate of -1000 far outputs are e^{1000 d} times likelier, and -2000 is below any epsilon."""
    mechanism = mdp.fit(random_problem(0, n_outputs=3), 1.0, "em")
    assert not mdp.certify(replace(mechanism, rate=rate)).holds


def spread_file(cells, n_outputs):
    """Return a sparse spline all of whose outputs have a single unit more in two opposite corners of the box."""
    n_axes, n_sites = len(cells), math.prod(n + 1 for n in cells)
    corner = np.ones(n_outputs, dtype=np.int64)
    corner[0] += 2**50 - n_outputs
    arrays = {
        "outputs": np.arange(n_outputs * n_axes, dtype=float).reshape(n_outputs, n_axes),
        "counts": np.ones(n_sites, dtype=np.uint16),
        "columns": np.zeros(n_sites - 2, dtype=np.uint16),
        "extras": np.full(n_sites - 2, 2**50),
    }
    arrays["counts"][[0, -1]] = n_outputs
    numbers = np.arange(n_outputs, dtype=np.uint16)
    arrays["columns"] = np.concatenate([numbers, arrays["columns"], numbers])
    arrays["extras"] = np.concatenate([corner, arrays["extras"], corner])
    arrays |= {f"breakpoints_{axis}": np.arange(n + 1.0) for axis, n in enumerate(cells)}
    box = [[0.0] * n_axes, [float(n) for n in cells]]
    settings = {"degree": 1, "step": 2.0**-20, "floor": (2**53 - 2**50) // n_outputs}
    return header_of(
        "spline", "spline", 1.0, 2.0, box, None, False, settings, {"cells": list(cells), "degree": 1}
    ), arrays


def test_extras_in_opposite_corners_do_not_make_a_proof_endless(tmp_path):
    """A small file, in which a proof that looked at everything between the corners would look at 10^10 sites."""
    header, arrays = spread_file([3000], 3000)
    (tmp_path / "m.mdp").write_bytes(sealed(header, arrays))
    mechanism = mdp.load(tmp_path / "m.mdp")
    looked_at = sum(len(window.extras) for window in windows(mechanism.table, mechanism.breakpoint_steps, 1))
    assert looked_at < 40 * len(arrays["extras"])


@pytest.mark.parametrize("dense", [False, True])
def test_a_file_of_kilobytes_is_proved_in_little_memory(dense, tmp_path):
    """Slopes in three axes take hundreds of bytes for every weight, so they are never held for all at once."""
    header, arrays = spread_file([64, 64, 64], 2)
    if dense:
        weights = np.full((65**3, 2), 1 << fineness(2), dtype=np.int64)
        arrays = {name: array for name, array in arrays.items() if name not in ("counts", "columns", "extras")}
        header["settings"].pop("floor")
        arrays["table"] = weights
    (tmp_path / "m.mdp").write_bytes(sealed(header, arrays))
    assert (tmp_path / "m.mdp").stat().st_size < 10**5
    mechanism = mdp.load(tmp_path / "m.mdp", certify=False)
    tracemalloc.start()
    assert mdp.certify(mechanism).holds
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 150e6


@pytest.mark.parametrize(("lat", "least"), [(41.9, 1.31), (78.2, 4.0)])
def test_a_moved_centre_does_not_stretch_kilometres(lat, least, tmp_path):
    """With the centre on the equator, a kilometre of the map is less than one on the ground where the box is."""
    middle = np.array([0.0, math.radians(lat) * 6371.0])
    box = np.array([middle - 10, middle + 10])
    outputs = np.array([middle, middle + 5])
    arrays = {"outputs": outputs, "labels": np.arange(2)}
    for number, ground in ((2, False), (3, False), (3, True)):
        for shrink in (1.0, 1 / least):
            settings = {"rate": 0.5 * shrink * (1 - 1e-5), "clip": None}
            header = header_of("exponential", "em", 1.0, 2.0, box, centred(12.5, 0.0), ground, settings, None, number)
            (tmp_path / "m.mdp").write_bytes(sealed(header, arrays))
            with pytest.raises(mdp.NotCertified):
                mdp.load(tmp_path / "m.mdp")
    # A claim that counts the whole distortion is let pass.
    settings = {"rate": 0.5 / 6, "clip": None}
    header = header_of("exponential", "em", 1.0, 2.0, box, centred(12.5, 0.0), True, settings, None, 3)
    (tmp_path / "m.mdp").write_bytes(sealed(header, arrays))
    assert mdp.certify(mdp.load(tmp_path / "m.mdp")).metres.kappa > least


@pytest.mark.parametrize("y", [9000.0, 10000.0, 12000.0])
def test_boxes_at_a_pole_have_no_claim(y, tmp_path):
    box = np.array([[-10.0, y], [10.0, y + 1500]])
    arrays = {"outputs": box, "labels": np.arange(2)}
    for ground in (False, True):
        header = header_of("exponential", "em", 1.0, 2.0, box, centred(0, 0), ground, {"rate": 1e-3, "clip": None})
        (tmp_path / "m.mdp").write_bytes(sealed(header, arrays))
        with pytest.raises(mdp.NotCertified, match="pole"):
            mdp.load(tmp_path / "m.mdp")


@pytest.mark.parametrize("kind", ["noise", "exponential", "lattice-laplace"])
@pytest.mark.parametrize("reach", [0.0, 30.0, -0.5])
@pytest.mark.parametrize("ground", [True, False])
def test_neighbours_across_the_meridian_opposite_the_centre_have_no_claim(tmp_path, kind, reach, ground):
    """Longitudes wrap there, so a step of metres leads from one edge of the box to the other."""
    edge = 180 * math.radians(1) * 6371.0
    box = np.array([[edge - 30, -15.0], [edge + reach, 15.0]])
    outputs, settings, grid = box, {"rate": 0.4}, None
    arrays = {"outputs": outputs}
    if kind == "noise":
        arrays = {"outputs": np.empty((0, 2))}
    elif kind == "exponential":
        arrays["labels"], settings = np.arange(2), {"rate": 0.4, "clip": None}
    else:
        arrays |= {"labels": np.array([[0], [1]]), "window": np.array([box[0] - 20, box[1] + 20])}
        grid = {"cells": [2, 1]}
    header = header_of(kind, "em", 1.0, 2.0, box, centred(0, 0), ground, settings, grid)
    (tmp_path / "m.mdp").write_bytes(sealed(header, arrays))
    with pytest.raises(mdp.NotCertified, match="half around"):
        mdp.load(tmp_path / "m.mdp")


def test_half_around_the_earth_has_no_claim(tmp_path):
    box = np.array([[-10100.0, -1.0], [10100.0, 1.0]])
    arrays = {"outputs": box, "labels": np.arange(2)}
    header = header_of("exponential", "em", 1.0, 2.0, box, centred(0, 0), True, {"rate": 1e-3, "clip": None})
    (tmp_path / "m.mdp").write_bytes(sealed(header, arrays))
    with pytest.raises(mdp.NotCertified, match="half around"):
        mdp.load(tmp_path / "m.mdp")


def test_rows_of_cells_whose_logarithms_agree_are_a_jump(tmp_path):
    """Logarithms of neighbouring floats may round to the same number; the rows are different all the same."""
    one = 0.1
    while np.log(one) != np.log(np.nextafter(one, 1)):
        one = np.nextafter(one, 1)
    table = np.array([[one, 1 - one], [np.nextafter(one, 1), 1 - one]])
    arrays = {"outputs": np.array([[0.0], [2.0]]), "table": table, "breakpoints_0": np.array([0.0, 1.0, 2.0])}
    header = header_of("cellwise", "lp", 1.0, 2.0, [[0.0], [2.0]], grid={"cells": [2]})
    (tmp_path / "m.mdp").write_bytes(sealed(header, arrays))
    with pytest.raises(mdp.NotCertified):
        mdp.load(tmp_path / "m.mdp")


def test_no_output_is_possible_from_one_point_and_impossible_from_its_neighbour():
    """Floating-point noise ended at about 73/ε; lattice noise has no end: a square 100/ε away has its label drawn."""
    problem = mdp.Problem([[0.0], [4.0]], [[0.0], [4.0]], "euclidean", bounds=[[0.0], [4.0]])
    mechanism = mdp.fit(problem, 1.0, "laplace", squares=8)

    class Words:
        """The first words have a hundred leading zero digits, so the noise is far out in the tail."""

        secure = True

        def __init__(self):
            self.calls = 0

        def words(self, count):
            self.calls += 1
            words = np.zeros(count, dtype=np.uint64)
            if self.calls >= 4:
                words[:] = 2**40
            return words

    noise = mechanism.noise.draw(1, Words())
    assert abs(int(noise[0, 0])) * mechanism.step > 100
