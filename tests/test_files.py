import io
import json
import math
import zipfile

import numpy as np
import pytest

import metricdp as mdp
from conftest import random_problem


@pytest.fixture
def mechanism():
    return mdp.fit(random_problem(0, p=math.inf), 0.7, "aipo", cells=2, splits=3)


def test_round_trip_is_exact(mechanism, tmp_path):
    mechanism.save(tmp_path / "m.mdp")
    again = mdp.load(tmp_path / "m.mdp")
    points = np.random.default_rng(0).uniform(-1, 5, size=(100, 2))
    assert np.array_equal(again.probabilities(points), mechanism.probabilities(points))
    assert np.array_equal(again.outputs, mechanism.outputs)
    assert (again.epsilon, again.p, again.method) == (0.7, math.inf, "aipo")
    assert again.report == mechanism.report
    assert mdp.certify(again).holds
    assert [f.name for f in tmp_path.iterdir()] == ["m.mdp"]


def test_a_failed_save_leaves_the_old_file_and_nothing_else(mechanism, tmp_path, monkeypatch):
    target = tmp_path / "m.mdp"
    target.write_text("precious")
    monkeypatch.setattr("metricdp.files._write", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        mechanism.save(target)
    assert target.read_text() == "precious"
    assert [f.name for f in tmp_path.iterdir()] == ["m.mdp"]


def rewritten(source, target, change):
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        parts = {name: old.read(name) for name in old.namelist()}
        change(parts)
        for name, data in parts.items():
            new.writestr(name, data)
    return target


def change_header(**changes):
    def change(parts):
        parts["header.json"] = json.dumps(json.loads(parts["header.json"]) | changes).encode()

    return change


def replace_array(name, array, *, allow_pickle=False):
    def change(parts):
        buffer = io.BytesIO()
        np.save(buffer, array, allow_pickle=allow_pickle)
        parts[f"{name}.npy"] = buffer.getvalue()

    return change


@pytest.mark.parametrize(
    "change",
    [
        change_header(format=99),
        change_header(kind="unknown"),
        change_header(epsilon="-1"),
        change_header(p="0.2"),
        change_header(report=3),
        lambda parts: parts.pop("header.json"),
        lambda parts: parts.pop("log_table.npy"),
        lambda parts: parts.pop("outputs.npy"),
        lambda parts: parts.update({"header.json": b"not json"}),
        lambda parts: parts.update({"header.json": b"[]"}),
        lambda parts: parts.update({"log_table.npy": parts["log_table.npy"][:-20]}),
        replace_array("log_table", np.zeros((2, 2))),
        replace_array("log_table", np.full((9, 5), np.nan)),
        replace_array("outputs", np.zeros((5, 3))),
        replace_array("bounds", np.zeros((3, 2))),
        replace_array("bounds", np.array([[0.0, 0.0], [9.0, 9.0]])),
        replace_array("breakpoints_0", np.array([0.0, 3.0, 2.0])),
        replace_array("log_table", np.array([{"a": 1}], dtype=object), allow_pickle=True),
    ],
)
def test_damaged_files_are_refused(mechanism, tmp_path, change):
    mechanism.save(tmp_path / "m.mdp")
    bad = rewritten(tmp_path / "m.mdp", tmp_path / "bad.mdp", change)
    with pytest.raises(mdp.InvalidInputError, match=r"bad\.mdp"):
        mdp.load(bad)


def test_truncated_and_foreign_files_are_refused(mechanism, tmp_path):
    mechanism.save(tmp_path / "m.mdp")
    whole = (tmp_path / "m.mdp").read_bytes()
    for size in (0, 10, len(whole) // 2, len(whole) - 1):
        (tmp_path / "cut.mdp").write_bytes(whole[:size])
        with pytest.raises(mdp.InvalidInputError, match=r"cut\.mdp"):
            mdp.load(tmp_path / "cut.mdp")
    with pytest.raises(FileNotFoundError):
        mdp.load(tmp_path / "none.mdp")
