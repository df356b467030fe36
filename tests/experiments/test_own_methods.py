"""Methods of a user beside the library's: judged by the same rules, unable to spoil the table, and kept honestly."""

import dataclasses
import io
import json
import os

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import metricdp as mdp
import own_designs
from metricdp.auditing.pairs import Ratios
from metricdp.experiments import comparing
from metricdp.experiments.comparison_figures import loss_figure, ppr_figure
from metricdp.experiments.comparison_tables import markdown_table, rich_table
from metricdp.experiments.own_methods import OwnMethod
from metricdp.geometry.norms import norm
from problems import random_problem

QUICK = {"clusters": 5, "pairs": 500}


@pytest.fixture(scope="module")
def problem():
    return random_problem(0, n_records=40, n_outputs=4)


def row_of(frame, method, epsilon=1.0):
    return frame[(frame["method"] == method) & (frame["epsilon"] == epsilon)].iloc[0]


def test_a_function_that_designs_gives_the_row_of_what_it_designs(problem):
    def remade(problem, epsilon):
        return mdp.fit(problem, epsilon, "em")

    frame = mdp.compare(problem, [0.5, 2.0], ["em", remade], **QUICK)
    assert list(frame["method"]) == ["em", "remade"] * 2
    for epsilon in (0.5, 2.0):
        theirs, ours = row_of(frame, "em", epsilon), row_of(frame, "remade", epsilon)
        for column in ("loss", "gap", "certified", "violation_ratio", "max_ratio", "lower_bound", "error"):
            assert theirs[column] == ours[column], column
        assert ours["seconds"] > 0


def test_probabilities_alone_are_audited_and_called_not_proved(problem):
    frame = mdp.compare(
        problem, [1.0], [("softmax", own_designs.softmax), ("nearest", own_designs.nearest), "em"], **QUICK
    )
    soft, near = row_of(frame, "softmax"), row_of(frame, "nearest")
    rows = own_designs.softmax(problem, 1.0)(problem.records)
    assert soft["loss"] == pytest.approx(problem.prior @ (rows * problem.loss).sum(axis=1))
    assert near["loss"] == pytest.approx(problem.floor)
    assert not frame[frame["method"] != "em"]["certified"].any()
    # e^{-d/2} is the exponential mechanism, which is private; the nearest output is not, anywhere.
    assert soft["violation_ratio"] == 0
    assert soft["max_ratio"] <= 1
    assert near["max_ratio"] == np.inf
    assert near["violation_ratio"] > 0
    assert not frame.certificates["softmax", 1.0].holds
    assert "no proof is known" in frame.certificates["softmax", 1.0].claim
    for text in (markdown_table(frame), shown(frame)):
        assert text.count("not proved") == 2
        assert "proved" in text


def shown(frame):
    stream = io.StringIO()
    Console(file=stream, width=200).print(rich_table(frame, "t"))
    return stream.getvalue()


def test_a_fitted_mechanism_is_asked_at_every_epsilon_whether_it_is_private_there(problem):
    mechanism = mdp.fit(problem, 1.0, "spline", cells=3)
    frame = mdp.compare(problem, [0.25, 1.0, 4.0], [mechanism], **QUICK)
    assert set(frame["method"]) == {"spline fitted at 1"}
    assert frame["certified"].tolist() == [False, True, True]
    assert frame["loss"].tolist() == pytest.approx([mechanism.expected_loss(problem)] * 3)
    assert frame["max_ratio"].iloc[0] > 1
    # The same ratios, in shares of another ε.
    assert frame["max_ratio"].iloc[1] == pytest.approx(4 * frame["max_ratio"].iloc[2], rel=1e-3)
    broken = frame.certificates["spline fitted at 1", 0.25]
    left, right = np.array(broken.worst_where["points"])
    logs = np.log(mechanism.probabilities([left, right]))[:, broken.worst_where["output"]]
    assert abs(logs[0] - logs[1]) > 0.25 * norm(left - right, 2)
    assert broken.epsilon == 0.25


def test_on_the_ground_epsilon_is_per_true_kilometre_for_own_methods_too():
    city = mdp.cities.RoadNetwork("toy", [1, 2, 3], [24.90, 24.92, 24.95], [60.1, 60.12, 60.1], [], [], [])
    ground = mdp.Problem(city.xy, city.xy[:2], "euclidean", projection=city.projection)
    seen = []

    def designed(problem, epsilon):
        seen.append(mdp.fit(problem, epsilon, "em"))
        return seen[-1]

    frame = mdp.compare(ground, [2.0], ["em", designed, ("softmax", own_designs.softmax)], **QUICK)
    assert seen[0].distance == "ground"
    assert frame["certified"].tolist() == [True, True, False]
    assert frame["error"].tolist() == ["", "", ""]
    # A claim per kilometre of the map is judged per true kilometre, of which κ make one on the map.
    for share, holds in ((0.9999, True), (1.0001, False)):
        rate = share * float(seen[0].plane_epsilon) / 2
        plane = dataclasses.replace(seen[0], distance="plane", epsilon=2 * rate, rate=rate)
        assert mdp.certify(plane).holds
        judged = mdp.compare(ground, [2.0], [("plane", plane)], **QUICK)
        assert judged["certified"].tolist() == [holds]
    assert frame.certificates["em", 2.0].metres.epsilon_per_km == 2.0


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (own_designs.fails, "ZeroDivisionError: "),
        (own_designs.wrong_shape, "The probabilities of 'wrong_shape' must be of shape (points, outputs)"),
        (own_designs.wrong_sum, "The probabilities of 'wrong_sum' must be rows that sum to 1 within 1e-09"),
        (own_designs.negative, "The probabilities of 'negative' must be numbers of at least 0"),
        (own_designs.not_a_number, "The probabilities of 'not_a_number' must be numbers of at least 0"),
        (
            own_designs.nothing,
            "'nothing' must return a Mechanism or a function from points to probabilities, got NoneType",
        ),
        (own_designs.other_outputs, "The mechanism has other outputs than the problem"),
        (own_designs.other_norm, "The mechanism is for p = 1 and the problem for p = 2."),
        (own_designs.noise, "The mechanism has other outputs than the problem"),
    ],
)
def test_what_fails_is_a_row_with_its_error_and_not_the_end(problem, method, words):
    frame = mdp.compare(problem, [1.0], [method, "em"], **QUICK)
    failed = row_of(frame, method.__name__)
    assert words in failed["error"]
    assert np.isnan(failed["loss"])
    assert not failed["certified"]
    assert row_of(frame, "em")["error"] == ""
    assert words in " ".join(shown(frame).split())
    assert method.__name__ not in [line.get_label() for line in loss_figure(frame, problem).axes[0].get_lines()]


def test_ctrl_c_in_an_own_method_ends_the_comparison(problem):
    def stopped(problem, epsilon):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mdp.compare(problem, [1.0], [stopped], **QUICK)


def test_with_workers_what_cannot_be_sent_runs_here_and_the_rest_there(problem):
    ran_here = []

    def local(problem, epsilon):
        ran_here.append(epsilon)
        return own_designs.softmax(problem, epsilon)

    told = []
    frame = mdp.compare(
        problem, [1.0], ["em", local, own_designs.process], **QUICK, workers=2, progress=lambda *said: told.append(said)
    )
    assert ran_here == [1.0]
    assert frame["error"].tolist()[:2] == ["", ""]
    # This one tells in which process it ran.
    assert frame["error"].iloc[2].startswith("RuntimeError: process ")
    assert frame["error"].iloc[2] != f"RuntimeError: process {os.getpid()}"
    fractions = [fraction for fraction, _ in told]
    assert fractions == sorted(fractions)
    assert len(told) == 4
    assert fractions[-1] == 1


def test_functions_of_a_notebook_are_not_sent(problem):
    design = eval("lambda problem, epsilon: None", {"__name__": "__main__"})
    named = type(own_designs.softmax)(own_designs.softmax.__code__, {"__name__": "__main__"}, "softmax")
    assert OwnMethod("own", own_designs.softmax).sendable
    assert not OwnMethod("own", design).sendable
    assert not OwnMethod("own", named).sendable
    assert not OwnMethod("own", lambda problem, epsilon: None).sendable


def test_results_of_mechanisms_are_kept_by_content_and_those_of_functions_never(problem, tmp_path, monkeypatch):
    measured = []
    measure = comparing.measure
    monkeypatch.setattr(comparing, "measure", lambda problem, job: measured.append(job.method) or measure(problem, job))
    first, second = mdp.fit(problem, 1.0, "em"), mdp.fit(problem, 0.5, "em")
    call = {**QUICK, "cache": tmp_path}
    before = mdp.compare(problem, [1.0], [("kept", first), own_designs.softmax], **call)
    assert sorted(measured) == ["kept", "softmax", "tight"]
    measured.clear()
    again = mdp.compare(problem, [1.0], [("kept", first), own_designs.softmax], **call)
    assert measured == ["softmax"]
    pd.testing.assert_frame_equal(before.drop(columns="seconds"), again.drop(columns="seconds"))
    measured.clear()
    mdp.compare(problem, [1.0], [("kept", second)], **call)
    assert measured == ["kept"]

    class Loud(type(first)):
        def _rows(self, points):
            return own_designs.nearest(problem, 1.0)(points)

    measured.clear()
    loud = Loud(**{one.name: getattr(first, one.name) for one in dataclasses.fields(first)})
    frame = mdp.compare(problem, [1.0], [("kept", loud)], **call)
    assert measured == ["kept"]
    assert not frame["certified"].any()


@pytest.fixture(scope="module")
def frame(problem):
    return mdp.compare(
        problem, [0.5, 1.0], ["em", ("near|est <b>[red]$x", own_designs.nearest), own_designs.fails], **QUICK
    )


def test_the_table_goes_through_parquet_with_what_lies_behind_it(frame, tmp_path):
    frame.to_parquet(tmp_path / "t.parquet")
    back = pd.read_parquet(tmp_path / "t.parquet")
    pd.testing.assert_frame_equal(back, pd.DataFrame(frame))
    assert back.attrs["behind"] == json.loads(json.dumps(frame.attrs["behind"]))
    kept = {(one["method"], one["epsilon"]): one for one in back.attrs["behind"]}
    assert Ratios(**kept["em", 1.0]["ppr"]) == frame.ratios["em", 1.0]
    assert kept["em", 1.0]["certificate"]["holds"] is True
    assert ("fails", 1.0) not in frame.ratios


def test_the_table_goes_into_latex_pickle_csv_and_parts_of_it_are_plain(frame, tmp_path):
    pytest.importorskip("jinja2")
    text = frame.to_latex(index=False, escape=True)
    assert "em & 0.5" in text
    assert r"near|est <b>[red]\$x" in text
    again = pd.read_csv(io.StringIO(frame.to_csv(index=False)), keep_default_na=True)
    assert np.allclose(again["loss"], frame["loss"], equal_nan=True)
    assert frame.copy().equals(frame)
    part = frame[frame["method"] == "em"]
    assert type(part) is pd.DataFrame
    assert "<table" in part.to_html()


def test_names_of_methods_are_text_wherever_they_are_shown(frame, problem):
    html = frame._repr_html_()
    assert "near|est &lt;b&gt;[red]$x" in html
    assert "<b>[red]" not in html
    assert "ZeroDivisionError" in html
    assert "near\\|est &lt;b>[red]$x" in markdown_table(frame)
    assert "near|est <b>[red]$x" in shown(frame)
    labels = [line.get_label() for line in loss_figure(frame, problem).axes[0].get_lines()]
    assert r"near|est <b>[red]\$x (not proved)" in labels
    loss_figure(frame, problem).canvas.draw()
    ppr_figure(
        {method: found for (method, epsilon), found in frame.ratios.items() if epsilon == 1.0}, 1.0
    ).canvas.draw()


def test_the_card_has_the_least_proved_loss_in_bold_and_marks_what_is_not_proved(frame):
    html = frame._repr_html_()
    for epsilon in (0.5, 1.0):
        assert f"<b>{row_of(frame, 'em', epsilon)['loss']:.3f}</b>" in html
    near = next(line for line in html.splitlines() if "near|est" in line)
    assert "<b>not proved</b>" in near
    assert near.count("<b>") == 1  # the least loss of all, but not private
    assert f"{frame['lower_bound'].iloc[0]:.3f}" in html
