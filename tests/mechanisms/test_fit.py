import math
from dataclasses import replace

import numpy as np
import pytest

import metricdp as mdp
from metricdp.certificates import proving
from metricdp.mechanisms.aipo.split import compose
from problems import random_problem


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, math.inf])
@pytest.mark.parametrize("n_axes", [2, 3])
def test_budgets_compose_to_half_of_epsilon(p, n_axes):
    mechanism = mdp.fit(random_problem(0, n_axes=n_axes, p=p), 0.9, "aipo", cells=2, splits=5)
    report = mechanism.report
    assert compose(np.array(report["budgets"]), p) == pytest.approx(0.45, rel=1e-5)
    assert report["budgets_compose_to"] <= 0.45
    assert report["loss"] == pytest.approx(mechanism.expected_loss(random_problem(0, n_axes=n_axes, p=p)))


@pytest.mark.parametrize("n_axes", [2, 3])
def test_the_split_of_least_true_loss_is_kept(n_axes):
    rng = np.random.default_rng(0)
    # A loss that cares about the first axis only: the best split gives that axis nearly everything.
    problem = mdp.Problem(
        rng.random((80, n_axes)) * 4,
        rng.random((5, n_axes)) * 4,
        lambda x, y: np.abs(x[:, None, 0] - y[None, :, 0]),
        bounds=[[0.0] * n_axes, [4.0] * n_axes],
    )
    mechanism = mdp.fit(problem, 1.0, "aipo", cells=3, splits=14)
    tried = mechanism.report["splits"]
    best = min(tried, key=lambda split: split["loss"])
    assert mechanism.report["budgets"] == best["budgets"]
    assert mechanism.report["budgets"][0] > 0.95 * 0.5
    equal = mdp.fit(problem, 1.0, "aipo-e", cells=3)
    assert tried[0]["loss"] == pytest.approx(equal.expected_loss(problem))
    assert mechanism.expected_loss(problem) < equal.expected_loss(problem)
    assert len(tried) <= 14


@pytest.mark.parametrize("solver", ["highs", "clarabel"])
def test_both_engines_reach_the_same_loss_and_are_named(solver):
    problem = random_problem(9, n_outputs=8, n_records=300)
    mechanism = mdp.fit(problem, 1.0, "aipo-e", cells=5, solver=solver)
    assert mechanism.report["solver"].startswith(solver)
    assert mechanism.report["status"] == "optimal"
    assert mechanism.report["surrogate_loss"] >= mechanism.report["surrogate_bound"]
    other = mdp.fit(problem, 1.0, "aipo-e", cells=5)
    assert mechanism.report["surrogate_loss"] == pytest.approx(other.report["surrogate_loss"], rel=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_refinement_descends_on_the_true_loss(seed):
    problem = random_problem(seed, n_outputs=6, n_records=200, side=10.0)
    plain = mdp.fit(problem, 1.5, "aipo-e", cells=2)
    refined = mdp.fit(problem, 1.5, "aipo-e", cells=2, refine=True)
    assert refined.report["loss_before_refine"] == pytest.approx(plain.expected_loss(problem))
    assert refined.expected_loss(problem) < plain.expected_loss(problem) * (1 - 1e-5)
    assert refined.report["refine_steps"] > 0
    assert mdp.certify(refined).holds


def test_the_gradient_of_the_true_loss_is_right():
    from metricdp._clock import Clock
    from metricdp.mechanisms.aipo.fit import AipoOptions, _Design

    problem = random_problem(0, n_outputs=4, prior=True)
    options = AipoOptions(cells=2)
    design = _Design(problem, options.grid(problem), options, Clock(None))
    rng = np.random.default_rng(0)
    design.table = rng.dirichlet(np.ones(4), size=design.grid.n_anchors)
    direction = rng.normal(size=design.table.shape) * design.table
    step = 1e-6
    numeric = (
        design.true_loss(design.table + step * direction) - design.true_loss(design.table - step * direction)
    ) / (2 * step)
    assert np.vdot(design._gradient(), direction) == pytest.approx(numeric, rel=1e-6)


def test_given_and_adaptive_breakpoints():
    problem = random_problem(1)
    given = mdp.fit(problem, 1.0, "aipo-e", breakpoints=[[0.0, 1.0, 4.0], [0.0, 3.0, 4.0]])
    assert given.grid.breakpoints[0].tolist() == [0.0, 1.0, 4.0]
    adaptive = mdp.fit(problem, 1.0, "aipo-e", cells=3, breakpoints="adaptive")
    assert adaptive.grid.anchor_shape == (4, 4)
    assert len(set(np.diff(adaptive.grid.breakpoints[0]).round(6))) > 1
    with pytest.raises(mdp.InvalidInputError, match="start and end at the box"):
        mdp.fit(problem, 1.0, "aipo-e", breakpoints=[[0.0, 1.0], [0.0, 4.0]])


def test_more_cells_do_not_raise_the_surrogate_optimum_on_nested_grids():
    problem = random_problem(1)
    losses = [mdp.fit(problem, 1.0, "aipo-e", cells=c).report["surrogate_loss"] for c in (2, 4, 8)]
    # Arithmetic interpolation of a feasible table is not feasible on the finer grid in general, but utility should follow.
    assert losses[2] <= losses[0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epsilon": 0}, "`epsilon` must be a positive finite number, got 0"),
        ({"epsilon": -1}, "`epsilon` must be"),
        ({"epsilon": math.inf}, "`epsilon` must be"),
        ({"epsilon": math.nan}, "`epsilon` must be"),
        ({"epsilon": "x"}, "`epsilon` must be"),
        ({"method": "magic"}, "`method` must be one of .*got 'magic'"),
        ({"cells": 0}, "`cells` must be a whole number of at least 1, got 0"),
        ({"cells": 2.5}, "`cells` must be a whole number"),
        ({"cells": (2, 2, 2)}, "`cells` must be one whole number or one for each of the 2 axes"),
        ({"breakpoints": "random"}, "`breakpoints` must be one of 'uniform', 'adaptive', 'graded'"),
        ({"solver": "gurobi"}, "`solver` must be one of 'auto', 'highs', 'clarabel', got 'gurobi'"),
        ({"time_limit": 0}, "`time_limit` must be a positive finite number"),
        ({"splits": 0}, "`splits` must be a whole number of at least 1"),
        ({"cell": 4}, "Method 'aipo' has no option 'cell'; its options are cells, "),
        ({"cells": 20_000}, r"needs about .* GB of memory and .* GB are free; take fewer `cells`"),
    ],
)
def test_bad_arguments(change, words):
    arguments = {"epsilon": 1.0, "method": "aipo"} | change
    with pytest.raises(mdp.InvalidInputError, match=words):
        mdp.fit(random_problem(0), **arguments)


def test_not_a_problem():
    with pytest.raises(mdp.InvalidInputError, match=r"`problem` must be a metricdp\.Problem, got dict"):
        mdp.fit({}, 1.0)


def test_four_axes_work_when_small_and_are_refused_by_estimate_when_large():
    problem = random_problem(0, n_axes=4, n_records=30, n_outputs=3)
    assert mdp.fit(problem, 1.0, "aipo-e", cells=1).grid.n_anchors == 16
    with pytest.raises(mdp.ProblemTooLargeError, match="61 x 61 x 61 x 61 anchors"):
        mdp.fit(problem, 1.0, "aipo-e", cells=60)


@pytest.mark.parametrize("solver", ["highs", "clarabel"])
@pytest.mark.parametrize("time_limit", [1e-3, 0.3])
def test_a_solver_stopped_early_still_answers_with_a_certified_mechanism(solver, time_limit):
    problem = random_problem(0, n_outputs=20, n_records=400, side=40.0)
    mechanism = mdp.fit(problem, 0.3, "aipo", cells=16, solver=solver, time_limit=time_limit)
    assert mechanism.report["status"] == "time limit"
    assert mdp.certify(mechanism).holds
    assert mechanism.expected_loss(problem) <= problem.uniform_loss * (1 + 1e-12)


def test_progress_is_told():
    said = []
    mdp.fit(random_problem(0), 1.0, "aipo", cells=2, splits=5, progress=lambda f, w: said.append((f, w)))
    assert len(said) == 5
    assert said[-1][0] == 1.0
    assert "loss" in said[0][1]


def test_duplicate_outputs_are_allowed():
    problem = mdp.Problem([[0.0], [1.0]], [[0.5], [0.5]], "euclidean")
    mechanism = mdp.fit(problem, 1.0, "aipo-e", cells=2)
    assert mechanism.expected_loss(problem) == pytest.approx(0.5)


@pytest.mark.parametrize("solver", ["highs", "clarabel"])
def test_cells_far_wider_than_one_over_epsilon(solver):
    """e^{−ε_ℓ Δ_ℓ} falls below what HiGHS takes for zero, which it says with a warning."""
    problem = random_problem(0, side=100.0)
    mechanism = mdp.fit(problem, 8.0, "aipo-e", cells=4, solver=solver)
    assert mdp.certify(mechanism).holds
    assert mechanism.expected_loss(problem) < problem.uniform_loss


@pytest.mark.parametrize("method", ["auto", "spline", "em"])
def test_a_fit_proves_what_it_returns_once(monkeypatch, method):
    proved = []
    proof_of = proving._proof_of

    def counted(mechanism):
        proved.append(mechanism.kind)
        return proof_of(mechanism)

    monkeypatch.setattr(proving, "_proof_of", counted)
    options = {"time_limit": 1} if method == "auto" else {}
    mechanism = mdp.fit(random_problem(0), 1.0, method, **options)
    assert proved == [mechanism.kind]


def test_auto_takes_the_best_that_is_proved(monkeypatch):
    """If the best candidate has no proof, the next best is returned, and never what was not proved."""
    problem = random_problem(0)
    best = mdp.fit(problem, 1.0, time_limit=1)
    proof_of = proving._proof_of

    def without_the_best(mechanism):
        prove = proof_of(mechanism)
        return (lambda given: replace(prove(given), holds=False)) if mechanism.kind == best.kind else prove

    monkeypatch.setattr(proving, "_proof_of", without_the_best)
    second = mdp.fit(problem, 1.0, time_limit=1)
    assert second.kind != best.kind
    assert second.report["certificate"]["holds"]
    assert second.report["loss"] >= best.report["loss"]
