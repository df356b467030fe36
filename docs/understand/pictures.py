"""The pictures of "Understand", made by the library: `python docs/understand/pictures.py docs/understand/pictures`.

Each function draws one of them. They have a white ground of their own, so that they can be read on dark pages too.
"""

import itertools
import sys
import tempfile
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.collections import LineCollection
from matplotlib.colors import LogNorm

import metricdp as mdp
from metricdp.geometry.earth import distortion
from metricdp.geometry.projection import Equirectangular

BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "0.55"
EPSILON = 8  # per km

CITY = mdp.cities.load("helsinki")
PROBLEM = CITY.problem(outputs=20, tasks=50, seed=0)
SPLINE = mdp.fit(PROBLEM, EPSILON, "spline", cells=12)


def nearest_record(place):
    return PROBLEM.records[np.linalg.norm(PROBLEM.records - place, axis=1).argmin()]


def promise():
    """Probabilities of all reports from A, from B near it and from C far away."""
    a, b, c = (nearest_record(place) for place in ([-0.1, -0.45], [0.0, -0.42], [0.25, 0.3]))
    rows = dict(zip("ABC", SPLINE.probabilities([a, b, c]), strict=True))
    apart = {name: 1000 * np.linalg.norm(place - a) for name, place in (("B", b), ("C", c))}
    allowed = np.exp(EPSILON * apart["B"] / 1000)
    print(f"promise: B is {apart['B']:.0f} m from A, C {apart['C']:.0f} m; allowed for B: factor {allowed:.2f}")
    print(f"promise: largest factor from A to B {np.exp(np.abs(np.log(rows['A'] / rows['B'])).max()):.2f}")
    order = rows["A"].argsort()[::-1]
    column, here = np.arange(len(order)), rows["A"][order]
    figure, axis = plt.subplots(figsize=(8, 4), layout="constrained")
    axis.bar(
        column,
        here * (allowed - 1 / allowed),
        bottom=here / allowed,
        color="0.85",
        label="allowed at the distance of B",
    )
    axis.hlines(here, column - 0.4, column + 0.4, color="black", linewidth=2, label="from A")
    axis.plot(column, rows["B"][order], "o", color=BLUE, label=f"from B, {apart['B']:.0f} m away")
    axis.plot(column, rows["C"][order], "x", color=ORANGE, label=f"from C, {apart['C']:.0f} m away")
    axis.set(yscale="log", ylim=(1e-7, 1), ylabel="probability of the report", xticks=[])
    axis.set_xlabel("the 20 places that may be reported, likeliest from A first")
    axis.legend(loc="lower left", fontsize=9)
    return figure


def odds():
    """How sure somebody can be who held two places for equally likely."""
    metres = np.linspace(0, 600, 301)
    figure, axis = plt.subplots(figsize=(8, 3.6), layout="constrained")
    for epsilon, colour in ((2, GREEN), (4, BLUE), (8, ORANGE), (16, GREY)):
        factor = np.exp(epsilon * metres / 1000)
        label = f"ε = {epsilon} per km: radius {1000 / epsilon:.0f} m"
        axis.plot(metres, 100 * factor / (1 + factor), color=colour, label=label)
        axis.plot(1000 / epsilon, 100 * np.e / (1 + np.e), "o", color=colour)
    axis.axhline(50, color="0.6", linestyle="--", linewidth=1)
    axis.set(xlabel="distance of the two places, m", ylabel="at most so sure, %", xlim=(0, 600), ylim=(48, 101))
    axis.set_title("50 : 50 before the report; after it", fontsize=11)
    axis.grid(color="0.92")
    axis.legend(loc="lower right", fontsize=9)
    return figure


def gradient():
    """One logarithm on a walk, and the wedge that the promise allows around one of its points."""
    north = np.linspace(*PROBLEM.bounds[:, 1], 700)
    walk = np.column_stack([np.full(len(north), 0.1), north])
    k = int(np.linalg.norm(PROBLEM.outputs - [0.1, 0.0], axis=1).argmin())
    line, dot = np.log(SPLINE.probabilities(walk)[:, k]), 230
    steepest = np.abs(np.diff(line) / np.diff(north)).max() / EPSILON
    print(f"gradient: steepest slope on the walk {steepest:.4f} of ε")
    figure, axis = plt.subplots(figsize=(8, 3.8), layout="constrained")
    reach = EPSILON * np.abs(north - north[dot])
    axis.fill_between(
        1000 * north, line[dot] - reach, line[dot] + reach, color="0.9", label="what is allowed, seen from the dot"
    )
    axis.plot(1000 * north, line, color=BLUE, linewidth=2, label="ln of one probability")
    axis.plot(1000 * north[dot], line[dot], "o", color=ORANGE)
    axis.set(
        xlabel="metres north", ylabel="logarithm", xlim=1000 * north[[0, -1]], ylim=(line.min() - 1, line.max() + 1.5)
    )
    axis.legend(loc="upper left", fontsize=9)
    return figure


def spline():
    """One probability of a spline on a line, its control values, and its slope against what is allowed."""
    x = np.linspace(0, 2, 201)[:, None]
    problem = mdp.Problem(x, [[0.4], [1.0], [1.6]], "euclidean")
    mechanism = mdp.fit(problem, 4.0, "spline", cells=4, degree=2, breakpoints="uniform")
    edges, degree = mechanism.grid.breakpoints[0], mechanism.degree
    control = mechanism.table[:, 1] / mechanism.table[0].sum()
    sites = np.interp(np.arange(len(control)), np.arange(0, len(control), degree), edges)
    figure, (above, below) = plt.subplots(2, 1, figsize=(8, 5.6), sharex=True, layout="constrained")
    fine = np.linspace(0, 2, 2001)
    probability = mechanism.probabilities(fine[:, None])[:, 1]
    above.plot(fine, probability, color=BLUE, linewidth=2, label="probability of the middle place")
    above.plot(sites, control, "o", color=ORANGE, label="control values, at the sites")
    largest = 0.0
    for i, h in enumerate(np.diff(edges)):
        here = slice(degree * i, degree * (i + 1) + 1)
        b, u = control[here], np.linspace(0, 1, 200)
        above.plot(sites[here], b, color=ORANGE, linewidth=0.7)
        rises = np.diff(b, prepend=b[0], append=b[-1])
        a = np.arange(degree + 1)
        slopes = np.abs((degree - a) * rises[1:] + a * rises[:-1]) / h / (4.0 * b)
        value = sum(weight * one for weight, one in zip(_bernstein(u), b, strict=True))
        slope = sum(
            weight * one for weight, one in zip(_bernstein(u), (degree - a) * rises[1:] + a * rises[:-1], strict=True)
        )
        ratio = np.abs(slope) / h / (4.0 * value)
        assert ratio.max() <= slopes.max() * (1 + 1e-9) <= 1 + 1e-9
        below.plot(edges[i] + h * u, ratio, color=BLUE, linewidth=2)
        below.plot(sites[here], slopes, "o", color=ORANGE)
        largest = max(largest, slopes.max())
    print(f"spline: largest of the checked values {largest:.6f}")
    below.axhline(1, color="black", linestyle="--", linewidth=1, label="allowed")
    for axis, x in itertools.product((above, below), edges):
        axis.axvline(x, color="0.85", linewidth=1, zorder=0)
    above.set(ylabel="probability")
    below.set(ylabel="slope ÷ (ε · probability)", xlabel="km", ylim=(0, 1.15))
    above.legend(loc="lower center", fontsize=9)
    below.legend(loc="lower left", fontsize=9)
    return figure


def _bernstein(u):
    """Return the chances of 0, 1 and 2 heads of two coins with chance u."""
    return (1 - u) ** 2, 2 * u * (1 - u), u**2


def repair():
    """A cone, a point outside of it, the uniform row, and the first point inside on the way from one to the other."""
    epsilon, n_places = 1.0, 4
    point, uniform = np.array([0.12, 0.2]), np.array([1 / n_places, 0])
    violation = point[1] - epsilon * point[0]
    odds = n_places * violation / epsilon
    share = odds / (1 + odds)
    mended = (1 - share) * point + share * uniform
    assert abs(mended[1] - epsilon * mended[0]) < 1e-12
    print(f"repair: a share of {share:.3f} of uniform")
    figure, axis = plt.subplots(figsize=(8, 3.6), layout="constrained")
    t = np.array([0, 0.4])
    axis.fill_between(t, -epsilon * t, epsilon * t, color="0.9")
    axis.annotate("", mended, point, arrowprops={"arrowstyle": "->", "color": ORANGE, "linewidth": 2})
    axis.plot(*np.transpose([mended, uniform]), color=ORANGE, linewidth=1, linestyle=":")
    for place, words, shift in (
        (point, "the solver's answer", (-8, 4)),
        (mended, "repaired: on the border", (8, 4)),
        (uniform, "uniform row: no slope", (8, -12)),
    ):
        axis.plot(*place, "o", color=BLUE)
        side = "right" if shift[0] < 0 else "left"
        axis.annotate(words, place, shift, textcoords="offset points", ha=side)
    axis.annotate("the cone: slope ≤ ε · probability", (0.3, -0.06), ha="left", color="0.35")
    axis.set(xlabel="probability t", ylabel="slope g", xlim=(0, 0.45), ylim=(-0.2, 0.26))
    return figure


def noise():
    """Exact noise for three norms."""
    figure, axes = plt.subplots(1, 3, figsize=(8, 3.1), sharey=True, layout="constrained")
    box = [[-1.0, -1.0], [1.0, 1.0]]
    turn = np.linspace(0, 2 * np.pi, 401)
    circle = np.column_stack([np.cos(turn), np.sin(turn)])
    for axis, p, words in zip(axes, (1, 2, np.inf), ("p = 1, by streets", "p = 2, straight", "p = ∞"), strict=True):
        mechanism = mdp.noise(2.0, p=p, bounds=box)
        points = np.asarray(mechanism.sample(np.zeros((2000, 2)), mdp.InsecureSeed(0)))
        axis.plot(*points.T, ".", color=BLUE, markersize=2, alpha=0.5)
        for radius in (0.5, 1.0, 1.5):
            ring = circle * (radius / np.linalg.norm(circle, ord=p, axis=1))[:, None]
            axis.plot(*ring.T, color=ORANGE, linewidth=1)
        axis.set(title=words, aspect="equal", xlim=(-2.6, 2.6), ylim=(-2.6, 2.6), xlabel="km")
    return figure


def earth():
    """κ of boxes of three sizes, by latitude."""
    latitudes = np.linspace(0, 75, 151)
    figure, axis = plt.subplots(figsize=(8, 3.6), layout="constrained")
    for side, colour in ((10, GREEN), (50, BLUE), (200, ORANGE)):
        half = side / 2
        found = [
            distortion(Equirectangular(0.0, latitude), np.array([[-half, -half], [half, half]])).kappa
            for latitude in latitudes
        ]
        axis.plot(latitudes, 100 * (np.array(found) - 1), color=colour, label=f"box of {side} km")
    axis.axhline(0, color="0.6", linestyle="--", linewidth=1)
    axis.set(xlabel="latitude of the middle, degrees", ylabel="κ − 1, %", xlim=(0, 75), ylim=(-0.5, 3))
    axis.set_title("the plane is longer than the ground by at most", fontsize=11)
    axis.grid(color="0.92")
    axis.legend()
    return figure


def window():
    """What the last 24 hours hold, for a limit per window and for a limit per calendar day."""
    day, limit, epsilon = 86_400, 10.0, 0.1
    times = np.arange(0, 3 * day, 300) + day // 2
    line = [[0.0], [1.0]]
    mechanism = mdp.fit(mdp.Problem(line, line, "euclidean"), epsilon, "em")
    with tempfile.TemporaryDirectory() as folder, mdp.Ledger(Path(folder) / "days.db", limit, window="24h") as ledger:
        answers = ledger.sample(mechanism, ["ann"] * len(times), np.zeros((len(times), 1)), times=times)
    drawn = answers >= 0
    calendar = np.zeros(len(times), dtype=bool)
    for number in np.unique(times // day):
        calendar[np.flatnonzero(times // day == number)[: round(limit / epsilon)]] = True
    held = {name: _held(times, which, day) * epsilon for name, which in (("window", drawn), ("calendar", calendar))}
    print(f"window: at most {held['window'].max():g} per km in 24 hours; by calendar days {held['calendar'].max():g}")
    figure, axis = plt.subplots(figsize=(8, 3.4), layout="constrained")
    hours = times / 3600
    axis.plot(hours, held["calendar"], color=ORANGE, label="a fresh limit every midnight")
    axis.plot(hours, held["window"], color=BLUE, linewidth=2, label="window of 24 hours")
    axis.axhline(limit, color="black", linestyle="--", linewidth=1, label="limit")
    axis.set(ylabel="ε in the last 24 hours, per km", xlim=hours[[0, -1]], ylim=(0, 22))
    axis.set_xticks([24, 48, 72], ["midnight"] * 3)
    axis.legend(loc="lower right", fontsize=9)
    return figure


def _held(times, drawn, length):
    """Return how many draws lie in the last `length` seconds, ends included, at each time."""
    moments = times[drawn]
    return np.searchsorted(moments, times, "right") - np.searchsorted(moments, times - length, "left")


def bound():
    """Losses of methods against the lower bound."""
    epsilons = np.array([2, 4, 8, 16, 32])
    figure, axis = plt.subplots(figsize=(8, 4.2), layout="constrained")
    lowest = np.array([mdp.lower_bound(PROBLEM, float(epsilon), clusters=200) for epsilon in epsilons])
    for method, colour, words in (
        ("em", GREY, "exponential mechanism"),
        ("laplace-remap", GREEN, "Laplace noise with remap"),
        ("spline", BLUE, "spline, 12 × 12 cells"),
    ):
        options = {"cells": 12} if method == "spline" else {}
        losses = np.array([mdp.fit(PROBLEM, float(one), method, **options).expected_loss(PROBLEM) for one in epsilons])
        assert (losses >= lowest).all()
        above = 100 * (losses / lowest - 1)
        print(f"bound: {method} is {above.min():.1f} to {above.max():.1f} % above")
        axis.plot(epsilons, 1000 * losses, "o-", color=colour, label=words)
    axis.fill_between(epsilons, 0, 1000 * lowest, color="0.88", label="no private mechanism is here")
    axis.axhline(1000 * PROBLEM.floor, color="0.3", linestyle="--", linewidth=1, label="loss without privacy")
    axis.set(xscale="log", xlabel="ε per km", ylabel="expected loss, m", xlim=epsilons[[0, -1]], ylim=(0, 420))
    axis.set_xticks(epsilons, [str(one) for one in epsilons])
    axis.minorticks_off()
    axis.legend(fontsize=9)
    return figure


def belief():
    """What the adversary believes before any report, after one and after ten."""
    truth, least = nearest_record([-0.1, -0.25]), 2e-4
    reports = SPLINE.sample(np.tile(truth, (10, 1)), mdp.InsecureSeed(3))
    beliefs = [PROBLEM.prior, mdp.posterior(SPLINE, PROBLEM, reports[:1]), mdp.posterior(SPLINE, PROBLEM, reports)]
    streets = 1000 * np.stack([CITY.xy[CITY.u], CITY.xy[CITY.v]], axis=1)
    figure, axes = plt.subplots(1, 3, figsize=(8, 4.6), sharey=True, layout="constrained")
    titles = "before any report", "after one report", "after ten reports"
    for axis, values, title in zip(axes, beliefs, titles, strict=True):
        axis.add_collection(LineCollection(streets, colors="0.8", linewidths=0.6, zorder=0))
        order = values.argsort()[(values <= least).sum() :]
        look = {"cmap": "Blues", "s": 9, "norm": LogNorm(100 * least, 5)}
        shown = axis.scatter(*(1000 * PROBLEM.records[order].T), c=100 * values[order], **look)
        axis.plot(*(1000 * truth), marker="*", markersize=13, color=ORANGE, markeredgecolor="white")
        axis.set(title=title, aspect="equal", xticks=[], yticks=[])
    figure.colorbar(shown, ax=axes, label="belief in a place, %", shrink=0.7, extend="both", format="%g")
    found = mdp.attack(SPLINE, PROBLEM, reports=[1, 10], draws=200)
    print(f"belief: {found.words}")
    return figure


PICTURES = (promise, odds, gradient, spline, repair, noise, earth, window, bound, belief)


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()
    for draw in PICTURES:
        figure = draw()
        figure.savefig(folder / f"{draw.__name__}.png", dpi=120, facecolor="white")
        plt.close(figure)


if __name__ == "__main__":
    main()
