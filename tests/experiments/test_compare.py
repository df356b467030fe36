"""Comparisons: right figures, resumable, the same in several processes."""

import io
import json
import os
import signal
import subprocess

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import metricdp as mdp
from experiments_tools import SILENT, all_ended, children_of, command, wait_until
from metricdp.experiments import comparing
from metricdp.experiments.comparison_figures import loss_figure, map_figure, ppr_figure
from metricdp.experiments.comparison_tables import markdown_table, rich_table
from problems import random_problem

METHODS = ["em", "aipo-e", "aipo-r"]
OPTIONS = {"aipo-e": {"cells": 3}, "aipo-r": {"cells": 3}}


@pytest.fixture(scope="module")
def problem():
    return random_problem(0, n_records=80, n_outputs=6)


@pytest.fixture(scope="module")
def frame(problem):
    return mdp.compare(problem, [0.5, 2.0], METHODS, options=OPTIONS, clusters=20, pairs=2000)


def test_one_row_per_method_and_epsilon_with_the_library_s_own_figures(problem, frame):
    assert list(zip(frame["method"], frame["epsilon"], strict=True)) == [(m, e) for e in (0.5, 2.0) for m in METHODS]
    row = frame[(frame["method"] == "em") & (frame["epsilon"] == 2.0)].iloc[0]
    assert row["loss"] == pytest.approx(mdp.fit(problem, 2.0, "em").expected_loss(problem))
    assert row["lower_bound"] == pytest.approx(mdp.lower_bound(problem, 2.0, clusters=20), rel=1e-6)
    assert row["gap"] == pytest.approx(row["loss"] / row["lower_bound"] - 1)
    private = frame[frame["method"] != "aipo-r"]
    assert private["certified"].all()
    assert (private["violation_ratio"] == 0).all()
    relaxed = frame[frame["method"] == "aipo-r"]
    assert not relaxed["certified"].any()
    assert (relaxed["max_ratio"] > 1).all()


def test_several_processes_give_the_same_table(problem, frame):
    parallel = mdp.compare(problem, [0.5, 2.0], METHODS, options=OPTIONS, clusters=20, pairs=2000, workers=2)
    pd.testing.assert_frame_equal(parallel.drop(columns="seconds"), frame.drop(columns="seconds"))


def test_an_interrupted_comparison_goes_on_where_it_stopped(problem, frame, tmp_path, monkeypatch):
    calls = []
    measure = comparing.measure

    def dies_at_the_fourth(problem, job):
        if len(calls) == 3:
            raise KeyboardInterrupt
        calls.append(job)
        return measure(problem, job)

    arguments = {"options": OPTIONS, "clusters": 20, "pairs": 2000, "cache": tmp_path / "cache"}
    monkeypatch.setattr(comparing, "measure", dies_at_the_fourth)
    with pytest.raises(KeyboardInterrupt):
        mdp.compare(problem, [0.5, 2.0], METHODS, **arguments)
    assert len(list((tmp_path / "cache").iterdir())) == 3
    again = []
    monkeypatch.setattr(comparing, "measure", lambda problem, job: again.append(job) or measure(problem, job))
    resumed = mdp.compare(problem, [0.5, 2.0], METHODS, **arguments)
    assert len(again) == 8 - 3
    pd.testing.assert_frame_equal(resumed.drop(columns="seconds"), frame.drop(columns="seconds"))
    # A damaged result is computed again; a changed problem, option or method shares nothing.
    victim = next(iter((tmp_path / "cache").iterdir()))
    victim.write_text("{broken")
    again.clear()
    mdp.compare(problem, [0.5, 2.0], METHODS, **arguments)
    assert len(again) == 1
    again.clear()
    mdp.compare(random_problem(1, n_records=80, n_outputs=6), [0.5], ["em"], clusters=20, cache=tmp_path / "cache")
    assert len(again) == 2
    again.clear()
    changed = {**OPTIONS, "aipo-e": {"cells": 3, "breakpoints": [np.linspace(0, 4, 4)] * 2}}
    mdp.compare(problem, [0.5], ["aipo-e"], **(arguments | {"options": changed}))
    assert [job.method for job in again] == ["aipo-e"]
    again.clear()
    monkeypatch.setattr("metricdp.experiments.engine.job.code_digest", lambda: "other code")
    mdp.compare(problem, [0.5], ["em"], **arguments)
    assert len(again) == 2


def test_keys_tell_problems_apart_that_differ_in_the_unit_of_epsilon_or_the_middle_of_a_long_option():
    city = mdp.cities.RoadNetwork("toy", [1, 2, 3], [24.90, 24.92, 24.95], [60.1, 60.12, 60.1], [], [], [])
    ground = mdp.Problem(city.xy, city.xy[:2], "euclidean", projection=city.projection)
    plane = mdp.Problem(ground.records, ground.outputs, ground.loss, ground.prior, ground.p, ground.bounds)
    assert ground.fingerprint == plane.fingerprint
    options = {"aipo": {"breakpoints": [np.linspace(0, 1, 5001) ** power for power in (1, 1)]}}
    other = {"aipo": {"breakpoints": [np.linspace(0, 1, 5001) ** power for power in (1, 1.01)]}}
    keys = [
        {job.key for job in comparing._jobs(problem, [1.0], ["aipo"], given, 10, 10)}
        for problem, given in ((ground, options), (plane, options), (plane, other))
    ]
    assert not keys[0] & keys[1]
    assert len(keys[1] & keys[2]) == 1  # the bound


@pytest.mark.skipif("helsinki" not in mdp.cities.available(), reason="needs the extra `cities`")
def test_ctrl_c_ends_a_comparison_and_its_processes_at_once(tmp_path):
    arguments = ["--city", "helsinki", "--epsilons", "4,8", "--methods", "auto", "--workers", "2", "--cache", tmp_path]
    with subprocess.Popen(command("compare", *arguments), **SILENT, start_new_session=True) as process:
        wait_until(lambda: len(children_of(process.pid)) >= 3, process)  # two workers, and a helper of Python's
        children = children_of(process.pid)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        assert process.wait(timeout=30) == 130
    assert all_ended(children)


def test_a_method_that_does_not_apply_is_a_row_with_its_reason(problem):
    table = mdp.compare(problem, [1.0], ["em", "aipo-e"], options={"aipo-e": {"cells": 10**6}}, clusters=10)
    failed = table[table["method"] == "aipo-e"].iloc[0]
    assert "GB of memory" in failed["error"]
    assert np.isnan(failed["loss"])
    assert "–" in markdown_table(table)
    labels = [line.get_label() for line in loss_figure(table, problem).axes[0].get_lines()]
    assert "Exponential" in labels
    assert not [label for label in labels if "AIPO" in label]


def test_without_a_lower_bound_there_is_no_table(problem, monkeypatch):
    monkeypatch.setattr(comparing, "measure", lambda problem, job: {"error": "The worker process died twice."})
    with pytest.raises(mdp.SolverError, match=r"There is no lower bound at ε = 2: The worker process died twice\."):
        mdp.compare(problem, [2.0], ["em"])


def test_a_private_method_without_a_proof_is_drawn_as_such(problem, frame):
    unproved = frame.assign(certified=False)
    labels = {line.get_label() for line in loss_figure(unproved, problem).axes[0].get_lines()}
    assert {"Exponential (not proved)", "AIPO-E (not proved)", "AIPO-R (not private)"} <= labels


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epsilons": []}, "`epsilons` must be non-empty"),
        ({"epsilons": [-1]}, "`epsilons` must be a positive finite number, got -1"),
        ({"methods": ["magic"]}, "`methods` must be one of"),
        ({"methods": []}, "`methods` must be non-empty"),
        ({"methods": ["em", "em"]}, "'em' is a method of the library; give yours another name"),
        ({"methods": [("mine", len), ("mine", len)]}, "'mine' is in `methods` twice; give yours another name"),
        ({"methods": [("em", len)]}, "'em' is a method of the library; give yours another name"),
        ({"methods": [("", len)]}, "`methods` must be names, mechanisms, functions"),
        ({"methods": [("mine", 3)]}, "`methods` must be names, mechanisms, functions"),
        ({"methods": [3]}, "`methods` must be names, mechanisms, functions .* got int"),
        ({"options": {"magic": {}}}, "`options` must be one of"),
        ({"workers": 0}, "`workers` must be a whole number of at least 1"),
        ({"clusters": 0}, "`clusters` must be"),
    ],
)
def test_bad_arguments(problem, change, words):
    with pytest.raises(mdp.InvalidInputError, match=words):
        mdp.compare(problem, **({"epsilons": [1.0], "methods": ["em"]} | change))


def test_tables_show_every_loss_and_who_is_private(frame):
    text = markdown_table(frame)
    for loss in frame["loss"]:
        assert f"{loss:.3f}" in text
    assert text.count("| proved |") == 2
    assert text.count("| not proved |") == 1
    worst = frame[frame["method"] == "aipo-r"]
    assert f"| not proved | {worst['max_ratio'].max():.3f} | {worst['violation_ratio'].max():.2%} |" in text
    assert rich_table(frame, "t").row_count == 4
    # In bold the least loss that was proved, which at both ε is that of aipo-e.
    for epsilon in (0.5, 2.0):
        proved = frame[(frame["epsilon"] == epsilon) & frame["certified"]]
        assert f"**{proved['loss'].min():.3f}**" in text
    assert text.count("**") == 4


def test_the_table_of_the_demo_fits_into_80_columns():
    rows = [
        {"method": method, "epsilon": epsilon, "loss": 0.4, "certified": method != "lp", "max_ratio": ratio,
         "violation_ratio": 0.356, "lower_bound": 0.3, "error": ""}
        for method, ratio in (("laplace-remap", 1.0), ("lp", 2727152.352))
        for epsilon in (2.0, 4.0, 8.0, 16.0)
    ]  # fmt: skip
    console = Console(file=io.StringIO(), width=80)
    console.print(rich_table(pd.DataFrame(rows), "expected error of travel distance, km"))
    shown = console.file.getvalue()
    assert "…" not in shown
    for words in ("laplace-remap", "lower bound", "violations", " 2.7e+06 "):
        assert words in shown
    assert "| not proved | 2.7e+06 | 35.60% |" in markdown_table(pd.DataFrame(rows))


def test_pictures_hold_what_they_should(problem, frame, tmp_path):
    figure = loss_figure(frame, problem)
    lines = {line.get_label(): line for line in figure.axes[0].get_lines()}
    em = frame[frame["method"] == "em"]
    assert np.array_equal(lines["Exponential"].get_ydata(), em["loss"])
    assert "AIPO-R (not private)" in lines
    assert lines["AIPO-R (not private)"].get_color() == mdp.METHODS["aipo-r"].colour
    assert lines["no privacy"].get_ydata()[0] == problem.floor
    mechanism = mdp.fit(problem, 2.0, "em")
    where = map_figure(mechanism, [1.0, 2.0])
    dots = where.axes[0].collections[0]
    assert np.allclose(dots.get_array(), mechanism.probabilities([[1.0, 2.0]])[0])
    found = mdp.audit(mechanism, pairs=500).ppr
    ratios = ppr_figure({"em": found}, 2.0)
    heights, edges, _ = ratios.axes[0].patches[0].get_data()
    assert np.sum(heights * np.diff(edges)) == pytest.approx(1.0)
    assert np.array_equal(heights > 0, np.array(found.counts) > 0)
    for name, picture in (("loss", figure), ("map", where), ("ppr", ratios)):
        picture.savefig(tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").stat().st_size > 5000


def test_results_are_plain_json(problem, tmp_path):
    mdp.compare(problem, [1.0], ["em"], clusters=10, cache=tmp_path)
    for path in tmp_path.iterdir():
        assert isinstance(json.loads(path.read_text()), dict)
