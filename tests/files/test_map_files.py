"""Files with a map of ε: written, read, proved; and what outsiders may put into them."""

import json

import numpy as np
import pytest

import metricdp as mdp
from forging import archive_of, npy, opened, sealed
from metricdp.files.reading import content_hash
from problems import random_problem

HERE = mdp.EpsilonMap([[-1, 2, 4], [0, 1, 3, 4]], [[0.5, 1.0, 0.5], [2.0, 0.5, 1.5]])


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("maps") / "map.mdp"
    mdp.fit(random_problem(1, n_records=100), HERE, "spline", cells=5).save(path)
    return path


def test_a_map_survives_saving_and_loading(file):
    mechanism = mdp.load(file)
    assert mechanism.epsilon_map == HERE.over(mechanism.bounds, mechanism.step)
    assert mechanism.epsilon == 2.0
    assert content_hash(mechanism) == content_hash(file)
    assert mechanism.report["certificate"]["paths"]["least"] == 0.5
    header, arrays = opened(file.read_bytes())
    assert arrays["epsilon_values"].tolist() == HERE.values.tolist()
    assert arrays["epsilon_breakpoints_0"].tolist() == [0, 2, 4]
    assert "epsilon_map" not in header


def with_map(arrays, **changes):
    """Return the arrays with some of the map's replaced, or left out if None."""
    return {name: array for name, array in (arrays | changes).items() if array is not None}


FORGERIES = {
    "no values": ({"epsilon_values": None}, "is not made of"),
    "no borders": ({"epsilon_breakpoints_1": None}, "is not made of"),
    "an axis too many": ({"epsilon_breakpoints_2": np.array([0.0, 1.0])}, "is not made of"),
    "values of another shape": ({"epsilon_values": np.ones((3, 2))}, "of shape"),
    "zero": ({"epsilon_values": np.array([[0.0, 1.0, 0.5], [2.0, 0.5, 1.5]])}, "positive everywhere"),
    "negative": ({"epsilon_values": np.array([[-1.0, 1.0, 0.5], [2.0, 0.5, 1.5]])}, "positive everywhere"),
    "nan": ({"epsilon_values": np.array([[np.nan, 1.0, 0.5], [2.0, 0.5, 1.5]])}, "finite everywhere"),
    "infinite": ({"epsilon_values": np.array([[np.inf, 1.0, 0.5], [2.0, 0.5, 1.5]])}, "finite everywhere"),
    "tiny": ({"epsilon_values": np.array([[1e-200, 1.0, 0.5], [2.0, 0.5, 1.5]])}, "the largest of them"),
    "another largest": ({"epsilon_values": np.array([[0.5, 1.0, 0.5], [1.9, 0.5, 1.5]])}, "the largest of them"),
    "integers": ({"epsilon_values": np.array([[1, 1, 1], [2, 1, 1]])}, "float64"),
    "borders that fall": ({"epsilon_breakpoints_0": np.array([0.0, 4.0, 2.0])}, "strictly increasing"),
    "borders that repeat": ({"epsilon_breakpoints_0": np.array([0.0, 0.0, 4.0])}, "strictly increasing"),
    "too small a box": ({"epsilon_breakpoints_0": np.array([0.0, 2.0, 3.0])}, "span the box"),
    "too large a box": ({"epsilon_breakpoints_0": np.array([-1.0, 2.0, 4.0])}, "span the box"),
    "borders that are no breakpoints": (
        {"epsilon_breakpoints_0": np.array([0.0, 1.999, 4.0])},
        "among breakpoints_0",
    ),
    "off the lattice": ({"epsilon_breakpoints_0": np.array([0.0, 2.0 + 1e-12, 4.0])}, "among breakpoints_0"),
    "equal neighbours": (
        {
            "epsilon_values": np.array([[0.5, 0.5, 0.5], [2.0, 2.0, 1.5]]),
        },
        "join them",
    ),
    "text": ({"epsilon_values": np.frombuffer(b"abcdef", dtype=np.uint8).reshape(2, 3)}, "float64"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_map_is_refused_by_the_reader(file, tmp_path, name):
    changes, words = FORGERIES[name]
    header, arrays = opened(file.read_bytes())
    path = tmp_path / "forged.mdp"
    path.write_bytes(sealed(header, with_map(arrays, **changes)))
    with pytest.raises(mdp.InvalidInputError, match=words):
        mdp.load(path)


def test_a_map_that_promises_more_is_refused_by_the_proof(file, tmp_path):
    header, arrays = opened(file.read_bytes())
    path = tmp_path / "forged.mdp"
    for place in np.ndindex(2, 3):
        values = arrays["epsilon_values"].copy()
        values[place] *= 0.8
        if values.max() != 2.0:
            continue
        path.write_bytes(sealed(header, arrays | {"epsilon_values": values}))
        with pytest.raises(mdp.NotCertified):
            mdp.load(path)
    # Without its map the file claims the largest ε everywhere, which is true and weaker.
    header["certificate"] = None
    path.write_bytes(sealed(header, {name: array for name, array in arrays.items() if "epsilon" not in name}))
    assert mdp.load(path).epsilon_map is None


def test_earlier_formats_have_no_maps(file, tmp_path):
    header, arrays = opened(file.read_bytes())
    header.pop("distance")
    path = tmp_path / "old.mdp"
    path.write_bytes(sealed(header | {"format": 2}, arrays))
    with pytest.raises(mdp.InvalidInputError, match="`format` must be 3 for a file with a map of epsilon, got 2"):
        mdp.load(path)
    kept = ("epsilon", "kind", "method", "p", "projection", "report", "settings")
    first = {name: header[name] for name in kept} | {"format": 1}
    arrays["bounds"] = np.array([[0.0, 0.0], [4.0, 4.0]])
    entries = [("header.json", json.dumps(first)), *((f"{name}.npy", npy(array)) for name, array in arrays.items())]
    path.write_bytes(archive_of(entries))
    with pytest.raises(mdp.InvalidInputError, match="`format` must be 3 for a file with a map of epsilon, got 1"):
        mdp.load(path)


def test_only_kinds_with_a_proof_for_maps_may_have_one(tmp_path):
    path = tmp_path / "laplace.mdp"
    mdp.fit(random_problem(1, n_records=100), 2.0, "laplace").save(path)
    header, arrays = opened(path.read_bytes())
    forged = {"epsilon_values": np.array([[0.5], [2.0]])}
    forged |= {f"epsilon_breakpoints_{axis}": np.array([0.0, 2.0, 4.0][:: 1 + axis]) for axis in (0, 1)}
    path.write_bytes(sealed(header, arrays | forged))
    with pytest.raises(mdp.InvalidInputError, match="left out for a LatticeLaplace"):
        mdp.load(path)
