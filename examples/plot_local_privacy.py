"""
Several answers of one survey
=============================

Local differential privacy of several attributes is the case p = ∞.

Age, weekly hours of work and income, each divided by the length of its range: two records then differ by at most 1 in
every attribute, which is d_∞ ≤ 1. So a mechanism that is (ε, d_∞)-mDP is ε-LDP besides: no report is more than e^ε
times likelier from one record than from any other. The converse is false, and that decides who loses less.

Left, ε-LDP for all. The optimum of the linear program under ε-LDP, one row per cell, loses least: it may spend all of
e^ε between neighbours. Randomised response (a band of each attribute with a third of ε, or all bands as one answer)
looks at neither prior nor loss: at small ε it is worse than a constant report, at ε = 8 the joint one is nearly
optimal under LDP. Both then lie below the black line, which no mechanism that keeps the promise of mDP can beat. Right,
what this promise adds: records that differ by a tenth of the range change the spline's reports by e^{ε/10} at most,
and those of the others by e^ε at the border of a band. Printed last: what is lost if records a tenth of the range
apart are to be protected equally. Then LDP needs a tenth of the ε, and the spline loses less.
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt
from scipy import optimize, sparse

import metricdp as mdp

folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()

epsilons, shown, attributes, bands, cells = [1, 2, 4, 8], 4, 3, 3, 6
people = np.random.default_rng(0)
n = 600
age = people.triangular(18, 38, 78, n)
works = people.random(n) < np.where(age < 65, 0.8, 0.1)
hours = np.where(works, people.choice([20, 38], n, p=[0.25, 0.75]) + people.normal(0, 4, n), 0).clip(0, 60)
income = (900 + 45 * hours + 12 * (age - 18)) * people.lognormal(0, 0.25, n)
records = np.column_stack([(age - 18) / 60, hours / 60, income.clip(0, 6000) / 6000])

levels = (np.arange(bands) + 0.5) / bands  # the middle of each band
outputs = np.stack(np.meshgrid(*[levels] * attributes, indexing="ij"), axis=-1).reshape(-1, attributes)


def error(records, outputs):
    """Return the mean error of an attribute, as a share of its range."""
    return np.abs(records[:, None] - outputs).mean(axis=2)


box = [[0] * attributes, [1] * attributes]
problem = mdp.Problem(records, outputs, error, p=np.inf, bounds=box)


def number(points, per_axis):
    """Return the number of the cell of each point, with so many cells along each axis."""
    place = np.minimum((points * per_axis).astype(int), per_axis - 1)
    return np.ravel_multi_index(place.T, [per_axis] * attributes)


def randomised_response(answers, choices, epsilon):
    """Return the rows of the true answer with a weight of e^ε and all others with a weight of 1."""
    rows = np.ones((len(answers), choices))
    rows[np.arange(len(answers)), answers] = np.exp(epsilon)
    return rows / (choices - 1 + np.exp(epsilon))


def response_jointly(epsilon):
    """Return all bands together as one answer."""
    return lambda points: randomised_response(number(points, bands), len(outputs), epsilon)


def response_by_attribute(epsilon):
    """Return one answer per attribute, each with its share of ε."""

    def rows(points):
        answers = np.stack(np.unravel_index(number(points, bands), [bands] * attributes))
        split = [randomised_response(one, bands, epsilon / attributes) for one in answers]
        return np.einsum("xi,xj,xk->xijk", *split).reshape(len(points), -1)

    return rows


def ldp_optimum(epsilon):
    """Return the best rows of cells, one per cell: all between some low_k and e^ε low_k, which is ε-LDP."""
    cell, k, ratio = number(records, cells), len(outputs), np.exp(epsilon)
    gather = sparse.csr_array((problem.prior, (cell, np.arange(n))), shape=(cells**attributes, n))
    used = np.flatnonzero(np.asarray(gather.sum(axis=1)) > 0)  # cells without records take the row of the first
    cost = (gather @ problem.loss)[used]
    each, lows = sparse.eye_array(cost.size), sparse.kron(np.ones((len(used), 1)), sparse.eye_array(k))
    within = sparse.block_array([[each, -ratio * lows], [-each, lows]])
    sums = sparse.hstack([sparse.kron(sparse.eye_array(len(used)), np.ones((1, k))), sparse.csr_array((len(used), k))])
    costs = np.append(cost, np.zeros(k))
    found = optimize.linprog(costs, A_ub=within, b_ub=np.zeros(within.shape[0]), A_eq=sums, b_eq=np.ones(len(used)))
    table = found.x[: cost.size].reshape(cost.shape).clip(0)
    table /= table.sum(axis=1, keepdims=True)
    # The solver keeps the ratio within 1e-7 of a probability; a trace of uniform rows keeps it without exception.
    short = max((table.max(axis=0) - ratio * table.min(axis=0)).max(), 0) + 1e-12
    trace = 1 / (1 + (ratio - 1) / (k * short))
    rows = np.repeat(((1 - trace) * table + trace / k)[:1], cells**attributes, axis=0)
    rows[used] = (1 - trace) * table + trace / k
    return lambda points: rows[number(points, cells)]


def loss_of(rows):
    """Return the expected error over all people."""
    return problem.prior @ np.einsum("xk,xk->x", rows(records), problem.loss)


looks = {
    "response, ε split": {"color": "0.6", "marker": "v", "design": response_by_attribute},
    "response, joint": {"color": "#e69f00", "marker": "s", "design": response_jointly},
    "laplace-remap": {"color": "#cc79a7", "marker": "^", "options": {"squares": 16}},
    "spline": {"color": "#0072b2", "marker": "o", "options": {"cells": 4, "breakpoints": "uniform"}},
    "optimum under LDP": {"color": "#d55e00", "marker": "D", "design": ldp_optimum},
}
designs, mechanisms, losses = {}, {}, {}
for method, look in looks.items():
    design, options = look.pop("design", None), look.pop("options", {})
    for epsilon in epsilons:
        if design is None:
            mechanisms[method, epsilon] = mdp.fit(problem, epsilon, method, **options)
        rows = mechanisms[method, epsilon].probabilities if design is None else design(epsilon)
        designs[method, epsilon] = rows
        losses[method, epsilon] = loss_of(rows)
    print(f"{method}: " + ", ".join(f"{100 * losses[method, epsilon]:.2f} %" for epsilon in epsilons))
bounds = [mdp.lower_bound(problem, epsilon, clusters=120) for epsilon in epsilons]
print("bound under mDP: " + ", ".join(f"{100 * bound:.2f} %" for bound in bounds))
constant = (problem.prior @ problem.loss).min()
print(f"the best constant report: {100 * constant:.2f} %; without privacy: {100 * problem.floor:.2f} %")

near = 0.1  # of the range, in every attribute
fair = ldp_optimum(near * epsilons[-1])
print(
    f"factor e^{near * epsilons[-1]:g} between records {near:g} of the range apart: "
    f"spline at ε = {epsilons[-1]} {100 * losses['spline', epsilons[-1]]:.2f} %, "
    f"optimum under LDP at ε = {near * epsilons[-1]:g} {100 * loss_of(fair):.2f} %"
)

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 4.8), layout="constrained")
for method, look in looks.items():
    left.plot(epsilons, [100 * losses[method, epsilon] for epsilon in epsilons], label=method, **look)
left.plot(epsilons, 100 * np.array(bounds), color="black", label="no mDP mechanism below")
left.axhline(100 * constant, color="0.4", linestyle=":", label="best constant report")
left.axhline(100 * problem.floor, color="0.4", linestyle="--", label="without privacy")
left.set(xscale="log", xlabel="ε", ylabel="mean error, % of the range", ylim=(0, None))
left.set_xticks(epsilons, [str(epsilon) for epsilon in epsilons])
left.minorticks_off()

distances, draws = np.linspace(0.05, 1, 20), 400
change = {method: [] for method in ("optimum under LDP", "response, joint", "spline")}
for apart in distances:
    start = people.random((draws, attributes))
    ends = (start + people.uniform(-apart, apart, start.shape)).clip(0, 1)
    axis, low = people.integers(attributes, size=draws), people.random(draws) * (1 - apart)
    start[np.arange(draws), axis], ends[np.arange(draws), axis] = low, low + apart
    for method, found in change.items():
        rows = designs[method, shown]
        found.append(np.abs(np.log(rows(start) / rows(ends))).max())
for method, found in change.items():
    right.plot(distances, found, **looks[method])
right.plot([0, 1], [0, shown], color="black", linestyle=":")
right.annotate("allowed by mDP", (0.55, 0.55 * shown), (0, 5), textcoords="offset points", rotation=40, ha="center")
right.set(xlabel="distance of two records, share of the range", ylabel=f"largest change of ln Pr found, ε = {shown}")
right.set(xlim=(0, 1), ylim=(0, 1.05 * shown))
figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3)
figure.savefig(folder / "local_privacy.png", dpi=100)
