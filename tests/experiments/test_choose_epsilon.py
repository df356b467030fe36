"""Which ε: the largest short number that keeps a promise, and what it costs."""

import json
import math
from decimal import Decimal, localcontext
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import metricdp as mdp
from metricdp.experiments.epsilon_choice import largest_epsilon
from oracles import reports_within
from problems import random_problem

COLUMNS = [
    "epsilon", "chosen", "radius_e", "radius_2", "report_distance_95", "report_distance_95_error", "loss", "loss_error",
]  # fmt: skip


@given(
    st.floats(min_value=1e-6, max_value=1e6),
    st.one_of(st.just(math.e), st.floats(min_value=1.0001, max_value=1e6)),
    st.sampled_from([1.0, math.sqrt(2), 2.0]),
)
def test_epsilon_keeps_the_promise_and_wastes_less_than_a_hundredth(radius, ratio, straight):
    epsilon = largest_epsilon(radius, ratio, straight)
    with localcontext() as context:
        context.prec = 80
        allowed = Decimal(1) if ratio == math.e else Decimal(ratio).ln()
        # What a mechanism makes of ε is the decimal that it is printed as.
        spent = Decimal(repr(epsilon)) * Decimal(repr(radius)) * Decimal(straight)
        assert spent <= allowed
        assert spent > allowed * Decimal("0.99")
    assert len(Decimal(repr(epsilon)).normalize().as_tuple().digits) <= 3


@pytest.mark.parametrize(
    ("radius", "ratio", "epsilon"),
    [(0.5, math.e, 2.0), (0.5, 2, 1.38), (0.3, math.e, 3.33), (0.1, math.e, 10.0), (2, 1.5, 0.202), (1.0, 2, 0.693)],
)
def test_epsilon_from_the_definition(radius, ratio, epsilon):
    assert largest_epsilon(radius, ratio) == epsilon


def test_no_report_is_likelier_than_promised():
    problem = random_problem(1, n_records=50)
    found = mdp.choose_epsilon(problem, radius_km=0.7, ratio=1.5, method="laplace")
    mechanism = mdp.fit(problem, found.epsilon, "laplace")
    rng = np.random.default_rng(0)
    here = rng.uniform(0, 4, (150, 2))
    angle = rng.uniform(0, 2 * np.pi, 150)
    there = np.clip(here + 0.7 * np.column_stack([np.cos(angle), np.sin(angle)]), 0, 4)
    ratios = mechanism.probabilities(here) / mechanism.probabilities(there)
    assert 1.4 < ratios.max() <= 1.5


@pytest.mark.parametrize("method", ["em", "laplace-remap"])
def test_the_table_has_what_each_epsilon_costs(method):
    problem = random_problem(2, n_records=50, prior=True)
    found = mdp.choose_epsilon(problem, 0.5, 2, method=method)
    assert list(found.table) == COLUMNS
    assert found.table["epsilon"].tolist() == [0.345, 0.69, 1.38, 2.76, 5.52]
    assert found.table["chosen"].tolist() == [False, False, True, False, False]
    assert found.epsilon == 1.38
    for row in found.table.itertuples():
        mechanism = mdp.fit(problem, row.epsilon, method)
        assert row.radius_e == pytest.approx(1 / row.epsilon)
        assert row.radius_2 == pytest.approx(math.log(2) / row.epsilon)
        assert row.loss == pytest.approx(mechanism.expected_loss(problem))
        assert row.report_distance_95 == pytest.approx(reports_within(mechanism, problem, 0.95))
    assert found.exact
    assert not found.table[["loss_error", "report_distance_95_error"]].any(axis=None)
    assert found.table["loss"].is_monotonic_decreasing
    assert (found.loss_without_privacy, found.loss_of_uniform_choice) == (problem.floor, problem.uniform_loss)
    assert (found.distance_unit, found.loss_unit) == ("", "")


@pytest.mark.parametrize("p", [1, 2, math.inf])
def test_radii_of_a_city_are_true_straight_kilometres(p):
    problem = mdp.cities.load("helsinki").problem(outputs=5, tasks=5, seed=0, p=p)
    found = mdp.choose_epsilon(problem, 0.125, method="em")
    # Diagonal steps are √2 times longer in d_1 than they are straight.
    assert found.epsilon == {1: 5.65, 2: 8.0, math.inf: 8.0}[p]
    assert (found.distance_unit, found.loss_unit) == ("km", "km")
    assert found.promise.startswith("Within 125 m no report")
    metres = mdp.certify(mdp.fit(problem, found.epsilon, "em")).metres
    assert metres.epsilon_per_km * 0.125 <= 1
    assert found.table["radius_e"][2] == pytest.approx(1 / metres.epsilon_per_km)


def test_estimates_say_so():
    found = mdp.choose_epsilon(random_problem(3, n_records=300), 1.0)
    assert not found.exact
    assert (found.table["report_distance_95_error"] > 0).all()
    said = dict(found.card.rows)
    assert said["figures"] == "estimates where there is a ±, one standard error; for method laplace-remap"
    assert "±" in said["95 % of reports"]


class Cells(HTMLParser):
    def __init__(self):
        super().__init__()
        self.text = []

    def handle_data(self, data):
        self.text.append(data)


def test_a_notebook_shows_words_and_table():
    problem = mdp.Problem([[0.0], [1.0]], [[0.0], [1.0]], "euclidean", loss_unit="<b>°C</b>")
    page = mdp.choose_epsilon(problem, 0.5, method="em")._repr_html_()
    assert "<b>" not in page
    reader = Cells()
    reader.feed(page)
    assert "Within 0.5 no report is more than e (about 2.72) times likelier from one place than from another." in (
        reader.text
    )
    assert "expected loss, <b>°C</b>" in reader.text
    assert "→" in reader.text


def test_plain_data_is_json():
    found = mdp.choose_epsilon(random_problem(0), 1.0, method="em")
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert list(data) == [
        "epsilon", "promise", "radius", "ratio", "distance_unit", "report_distance_95_without_privacy", "loss_unit",
        "loss_without_privacy", "loss_of_uniform_choice", "method", "exact", "error", "reports", "table",
    ]  # fmt: skip
    assert list(data["table"][0]) == COLUMNS


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_the_picture(tmp_path, ending):
    pytest.importorskip("matplotlib")
    mdp.choose_epsilon(random_problem(0), 1.0, method="em").plot(tmp_path / f"a.{ending}")
    content = (tmp_path / f"a.{ending}").read_bytes()
    assert content[:4] == {"png": b"\x89PNG", "svg": b"<?xm"}[ending]
    assert [file.name for file in tmp_path.iterdir()] == [f"a.{ending}"]


def test_a_unit_of_dollars_is_no_mathematics(tmp_path):
    pytest.importorskip("matplotlib")
    problem = mdp.Problem([[0.0], [1.0]], [[0.0], [1.0]], "euclidean", loss_unit=r"$\frac$ in US$")
    mdp.choose_epsilon(problem, 1.0, method="em").plot(tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 1000


def test_the_picture_shows_the_figures():
    pytest.importorskip("matplotlib")
    from metricdp.experiments.epsilon_figures import epsilon_figure

    found = mdp.choose_epsilon(random_problem(0), 1.0, method="em")
    distance, loss = epsilon_figure(found).axes
    for axes, column in ((distance, "report_distance_95"), (loss, "loss")):
        drawn = [line.get_ydata() for line in axes.get_lines() if len(line.get_ydata()) == 5]
        assert any(np.array_equal(line, found.table[column]) for line in drawn)
        assert found.epsilon in axes.get_xticks()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"radius_km": 0}, "`radius_km` must be a positive finite number"),
        ({"radius_km": math.nan}, "`radius_km` must be a positive finite number"),
        ({"ratio": 1}, "`ratio` must be above 1, got 1"),
        ({"ratio": math.inf}, "`ratio` must be a positive finite number"),
        ({"method": "magic"}, "`method` must be one of 'auto'"),
        ({"method": "lp"}, "`method` must be one whose mechanisms are private, got 'lp'"),
        ({"radius_km": 5e-324}, "`radius_km` of 4.94066e-324 has no ε that a number can hold"),
    ],
)
def test_errors(arguments, words):
    with pytest.raises(mdp.InvalidInputError, match=words):
        mdp.choose_epsilon(random_problem(0), **arguments)
    with pytest.raises(mdp.InvalidInputError, match=r"`problem` must be a metricdp\.Problem, got str"):
        mdp.choose_epsilon("rome")


def test_a_picture_of_unknown_kind_is_refused(tmp_path):
    pytest.importorskip("matplotlib")
    with pytest.raises(mdp.InvalidInputError, match=r"`path` must be a file that ends in one of .*\.png"):
        mdp.choose_epsilon(random_problem(0), 1.0, method="em").plot(tmp_path / "a.exe")
    assert not list(tmp_path.iterdir())


# By how far off an adversary still is


@pytest.mark.parametrize("reports", [1, 4])
def test_an_adversary_is_kept_off(reports):
    problem = random_problem(2, n_records=40, n_outputs=4)
    found = mdp.choose_epsilon(problem, error_km=1.0, reports=reports, method="em")
    (chosen,) = (row for row in found.table.itertuples() if row.chosen)
    seen = mdp.attack(mdp.fit(problem, found.epsilon, "em"), problem, reports, draws=2000)
    assert seen.error_least >= 1.0
    assert chosen.inference_error == pytest.approx(seen.error, rel=0.03)
    more = mdp.attack(mdp.fit(problem, 1.06 * found.epsilon, "em"), problem, reports, draws=2000)
    assert more.error < 1.03  # a larger ε would not do, or hardly
    assert found.table["inference_error"].is_monotonic_decreasing
    assert found.radius * found.epsilon <= 1
    assert "still at least 1 off on average" in found.against
    assert "adversary" in found._repr_html_()
    assert found.to_dict()["reports"] == reports


def test_more_reports_need_a_smaller_epsilon():
    problem = random_problem(2, n_records=40, n_outputs=4)
    one, four = (mdp.choose_epsilon(problem, error_km=1.0, reports=n, method="em").epsilon for n in (1, 4))
    assert four < 0.7 * one


def test_an_adversary_cannot_be_kept_further_off_than_without_any_report():
    problem = random_problem(2, n_records=40, n_outputs=4)
    with pytest.raises(mdp.InvalidInputError, match="`error_km` of 9 is out of reach: who has seen no report at all"):
        mdp.choose_epsilon(problem, error_km=9.0, method="em")
    with pytest.raises(mdp.InvalidInputError, match="`error_km` must be a positive finite number"):
        mdp.choose_epsilon(problem, error_km=-1.0)
    with pytest.raises(mdp.InvalidInputError, match="leave out `radius_km` and `ratio`"):
        mdp.choose_epsilon(problem, 0.5, error_km=1.0)
    with pytest.raises(mdp.InvalidInputError, match="`reports` is about `error_km`"):
        mdp.choose_epsilon(problem, 0.5, reports=3)


def test_an_error_that_every_epsilon_keeps_is_no_choice():
    problem = random_problem(2, n_records=40, n_outputs=2)  # two outputs never tell forty places apart
    with pytest.raises(mdp.InvalidInputError, match=r"every ε .* is at least 0\.1 off; take another `error_km`"):
        mdp.choose_epsilon(problem, error_km=0.1, method="em")
