"""Naive references, written from the definitions: slow, plain, and independent of what they check."""

import itertools
import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
from scipy import sparse
from scipy.optimize import brentq, linprog, minimize, minimize_scalar
from scipy.sparse.csgraph import dijkstra
from scipy.stats import binom

from metricdp.geometry.norms import norm

# --- Norms ------------------------------------------------------------------------------------------------------------


def distance(a, b, p):
    """d_p(a, b)."""
    gap = np.abs(np.asarray(a) - np.asarray(b))
    return gap.max() if math.isinf(p) else (gap**p).sum() ** (1 / p)


def decimal_norm(vector, p):
    """‖v‖_p of whole numbers, in the precision of the present context."""
    if math.isinf(p):
        return Decimal(max(abs(x) for x in vector))
    total = sum(Decimal(abs(x)) ** Decimal(p) for x in vector if x)
    return Decimal(total) ** (1 / Decimal(p)) if total else Decimal(0)


# --- Definition 2: metric differential privacy ------------------------------------------------------------------------


def count_violations(mechanism, left, right):
    """Definition 2, literally: |ln z_k(a) − ln z_k(b)| > ε d_p(a, b), between the points that stand for a and b."""
    left, right = mechanism.snap(left), mechanism.snap(right)
    distance = norm(left - right, mechanism.p)
    change = np.abs(np.log(mechanism.probabilities(left)) - np.log(mechanism.probabilities(right)))
    return int((change > mechanism.epsilon * distance[:, None]).sum())


# --- Definitions 3, 5 and 6: interpolation between anchors ------------------------------------------------------------


def naive_weights(grid, x):
    """Definition 5, corner by corner, with the lambdas of Definition 3."""
    weights = np.zeros(grid.n_anchors)
    base = [max(i for i in range(len(e) - 1) if e[i] <= c or i == 0) for e, c in zip(grid.breakpoints, x, strict=True)]
    for gamma in itertools.product((0, 1), repeat=grid.n_axes):
        weight = 1.0
        for axis, g in enumerate(gamma):
            low, high = grid.breakpoints[axis][base[axis]], grid.breakpoints[axis][base[axis] + 1]
            lam = (high - x[axis]) / (high - low)
            weight *= (1 - g) * lam + g * (1 - lam)
        corner = [grid.breakpoints[axis][base[axis] + g] for axis, g in enumerate(gamma)]
        anchor = next(j for j, a in enumerate(grid.anchors) if np.array_equal(a, corner))
        weights[anchor] += weight
    return weights


def naive_row(grid, log_table, x):
    """Definitions 5 and 6 with products of powers, as printed."""
    weights = naive_weights(grid, x)
    values = [
        math.prod(math.exp(log_table[j, k]) ** weights[j] for j in range(grid.n_anchors))
        for k in range(log_table.shape[1])
    ]
    return [value / sum(values) for value in values]


def decimal_row(grid, log_table, x):
    """The same row, to 60 decimal digits."""
    with localcontext() as context:
        context.prec = 60
        logs = [Decimal(0)] * log_table.shape[1]
        cell, _ = grid.locate(x[None, :])
        places = []
        for axis, edges in enumerate(grid.breakpoints):
            left, right = (Fraction(float(edges[cell[0, axis] + end])) for end in (0, 1))
            places.append((Fraction(float(x[axis])) - left) / (right - left))
        for corner in itertools.product((0, 1), repeat=grid.n_axes):
            weight = math.prod(place if end else 1 - place for place, end in zip(places, corner, strict=True))
            anchor = np.ravel_multi_index(tuple(cell[0] + corner), grid.anchor_shape)
            share = Decimal(weight.numerator) / Decimal(weight.denominator)
            logs = [total + share * Decimal(float(log)) for total, log in zip(logs, log_table[anchor], strict=True)]
        values = [log.exp() for log in logs]
        return [value / sum(values) for value in values]


# --- Programs written out in full -------------------------------------------------------------------------------------


def naive_constraints(grid, budgets, n_outputs):
    """Z_ik ≤ e^{ε_ℓ Δ_ℓ} Z_jk for every ordered pair of ℓ-neighbours, found by comparing all anchors."""
    rows = []
    for i, a in enumerate(grid.anchors):
        for j, b in enumerate(grid.anchors):
            differs = np.flatnonzero(a != b)
            if len(differs) != 1:
                continue
            axis = int(differs[0])
            edges = grid.breakpoints[axis].tolist()
            if abs(edges.index(a[axis]) - edges.index(b[axis])) != 1:
                continue
            bound = math.exp(budgets[axis] * abs(a[axis] - b[axis]))
            for k in range(n_outputs):
                row = np.zeros(grid.n_anchors * n_outputs)
                row[i * n_outputs + k] = 1.0
                row[j * n_outputs + k] = -bound
                rows.append(row)
    return np.array(rows)


def dense_optimum(cost, reach, epsilon):
    """The least ⟨cost, Z⟩ with Z_ik ≤ e^{ε reach_ij} Z_jk for all pairs, dense."""
    n, k = cost.shape
    rows = []
    for i, j in itertools.permutations(range(n), 2):
        for output in range(k):
            row = np.zeros((n, k))
            row[i, output], row[j, output] = 1.0, -math.exp(epsilon * reach[i, j])
            rows.append(row.ravel())
    sums = np.kron(np.eye(n), np.ones(k))
    found = linprog(cost.ravel(), A_ub=np.array(rows), b_ub=np.zeros(len(rows)), A_eq=sums, b_eq=np.ones(n))
    assert found.status == 0
    return found.fun


def all_pairs_optimum(cost, points, epsilon, p):
    """The same between points at the distances d_p."""
    return dense_optimum(cost, np.array([[distance(a, b, p) for b in points] for a in points]), epsilon)


def dense_copt(loss, mass, apart, away, slope, nearest):
    """ConstOPT's program as its docstring writes it, in P, Y and λ; returns the least worst row."""
    n, k = away.shape
    free = [(u, v) for v in range(k) for u in np.argsort(away[:, v])[:nearest]]
    size = len(free) + k + 1
    sums = np.exp(-slope * away).sum(axis=1)

    def weight(u, v):
        row = np.zeros(size)
        if (u, v) in free:
            row[free.index((u, v))] = 1.0
        else:
            row[len(free) + v] = math.exp(-slope * away[u, v])
        return row

    rows, right = [], []
    for u in range(n):
        rows.append(sum(weight(u, v) * loss[u, v] for v in range(k)) / sums[u])
        rows[-1][-1] = -1.0
        rows.append(-sum(weight(u, v) for v in range(k)) / sums[u])
        right += [0.0 if mass[u] > 0 else 1e9, -1.0]
        for other, v in itertools.product(range(n), range(k)):
            rows.append(weight(u, v) - math.exp(slope * apart[u, other]) * weight(other, v))
            right.append(0.0)
    cost = np.zeros(size)
    cost[-1] = 1.0
    found = linprog(cost, A_ub=np.array(rows), b_ub=np.array(right), bounds=(0, None))
    assert found.status == 0
    return found.fun


def corner_program(problem, breakpoints, epsilon):  # noqa: C901 - the definition, loop by loop
    """Degree 1, p = 1 or ∞ in the plane, from the definition: slopes at every corner of every cell."""
    xs, ys = breakpoints
    nx, ny, k_all = len(xs), len(ys), problem.n_outputs
    count = nx * ny

    def index(i, j, k):
        return (i * ny + j) * k_all + k

    cost = np.zeros(count * k_all)
    for record, weight, losses in zip(problem.records, problem.prior, problem.loss, strict=True):
        i = min(int(np.searchsorted(xs, record[0], side="right")) - 1, nx - 2)
        j = min(int(np.searchsorted(ys, record[1], side="right")) - 1, ny - 2)
        u, v = (record[0] - xs[i]) / (xs[i + 1] - xs[i]), (record[1] - ys[j]) / (ys[j + 1] - ys[j])
        for a, wa in ((0, 1 - u), (1, u)):
            for b, wb in ((0, 1 - v), (1, v)):
                for k in range(k_all):
                    cost[index(i + a, j + b, k)] += weight * wa * wb * losses[k]
    signs = [(1, 0), (-1, 0), (0, 1), (0, -1)] if problem.p == 1 else [(1, 1), (1, -1), (-1, 1), (-1, -1)]
    rows = []
    for i in range(nx - 1):
        for j in range(ny - 1):
            hx, hy = xs[i + 1] - xs[i], ys[j + 1] - ys[j]
            for a in (0, 1):
                for b in (0, 1):
                    for k in range(k_all):
                        for sx, sy in signs:
                            row = np.zeros(count * k_all)
                            row[index(i + 1, j + b, k)] += sx / hx
                            row[index(i, j + b, k)] -= sx / hx
                            row[index(i + a, j + 1, k)] += sy / hy
                            row[index(i + a, j, k)] -= sy / hy
                            row[index(i + a, j + b, k)] -= epsilon
                            rows.append(row)
    sums = np.kron(np.eye(count), np.ones((1, k_all)))
    return linprog(cost, A_ub=np.array(rows), b_ub=np.zeros(len(rows)), A_eq=sums, b_eq=np.ones(count)).fun


# --- Splines, in fractions --------------------------------------------------------------------------------------------


def spline_law(breakpoints, degree, weights, point):
    """Σ_a Π_ℓ binom(m, a_ℓ) u^{a_ℓ} (1 − u)^{m − a_ℓ} b(a), in fractions."""
    counts = [degree * (len(edges) - 1) + 1 for edges in breakpoints]
    per_axis = []
    for edges, x in zip(breakpoints, point, strict=True):
        cell = max(i for i in range(len(edges) - 1) if edges[i] <= x)
        u = Fraction(int(x - edges[cell]), int(edges[cell + 1] - edges[cell]))
        bernstein = [math.comb(degree, a) * u**a * (1 - u) ** (degree - a) for a in range(degree + 1)]
        per_axis.append([(degree * cell + a, bernstein[a]) for a in range(degree + 1)])
    law = [Fraction(0)] * weights.shape[1]
    total = int(weights[0].sum())
    for corner in itertools.product(*per_axis):
        row = np.ravel_multi_index([site for site, _ in corner], counts)
        share = math.prod(weight for _, weight in corner)
        law = [old + share * Fraction(int(weight), total) for old, weight in zip(law, weights[row], strict=True)]
    return law


def site_ratio_power(mechanism, cell, a, k):
    """(‖g‖_q / b)^r with r = 2 for p = 2 and 1 otherwise, at site `a` of a cell, exactly."""
    m, table = mechanism.degree, mechanism.table
    counts = [m * cells + 1 for cells in mechanism.grid.cells]

    def b(site):
        return int(table[np.ravel_multi_index([m * i + j for i, j in zip(cell, site, strict=True)], counts), k])

    slopes = []
    for axis, points in enumerate(mechanism.grid.breakpoints):
        h = Fraction(points[cell[axis] + 1]) - Fraction(points[cell[axis]])
        up, down = list(a), list(a)
        up[axis] += 1
        down[axis] -= 1
        rise = (m - a[axis]) * (b(up) - b(a)) if a[axis] < m else 0
        rise += a[axis] * (b(a) - b(down)) if a[axis] > 0 else 0
        slopes.append(abs(rise / h))
    if mechanism.p == 2:
        return sum(slope**2 for slope in slopes) / b(a) ** 2
    return (max(slopes) if mechanism.p == 1 else sum(slopes)) / b(a)


# --- The exponential mechanism ----------------------------------------------------------------------------------------


def exponential_rows(problem, epsilon, points, clip=math.inf):
    """Rows of EM and TEM, one number at a time."""
    table = []
    for x in points:
        weights = []
        for y in problem.outputs:
            gap = [abs(a - b) for a, b in zip(x, y, strict=True)]
            d = max(gap) if math.isinf(problem.p) else sum(g**problem.p for g in gap) ** (1 / problem.p)
            weights.append(math.exp(-epsilon / 2 * min(d, clip)))
        table.append([w / sum(weights) for w in weights])
    return np.array(table)


# --- Masses of labels under Laplace noise -----------------------------------------------------------------------------


def by_quadrature(mechanism, x, fine=60, reach=45.0):
    """Integrate the density over the plane of the problem, square by square, from its definition."""
    frame, rate, p = mechanism.frame, mechanism.rate, mechanism.p
    nodes, weights = np.polynomial.legendre.leggauss(fine)
    cuts = []
    centre = frame.enter(x[None])[0]
    for axis, edges in enumerate(mechanism.squares.edges):
        # Cut at the edges of squares, and at x where the density has its kink; squares on the border go on outwards.
        far = centre[axis] + np.array([-1, 1]) * reach / rate
        steps = np.linspace(*far, 24)
        cuts.append(np.unique(np.concatenate([edges[1:-1], [centre[axis]], steps])))
    places = [(c[:-1, None] + (nodes + 1) / 2 * np.diff(c)[:, None]).ravel() for c in cuts]
    weight = [(np.diff(c)[:, None] / 2 * weights).ravel() for c in cuts]
    u, w = np.meshgrid(*places, indexing="ij")
    spots = np.stack([u.ravel(), w.ravel()], axis=1)
    volume = np.outer(*weight).ravel()
    density = np.exp(-rate * norm(frame.leave(spots) - x, p)) * volume
    # ∫ e^{−rate‖·‖_p} over the plane: rate^−2 times 4 (p = 1), 2π (p = 2); in the frame of p = ∞ it is 4 again.
    total = (2 * math.pi if p == 2 else 4.0) / rate**2
    number = [
        np.clip(np.floor((spots[:, a] - mechanism.window[0, a]) / mechanism.squares.pitch[a]), 0, n - 1)
        for a, n in enumerate(mechanism.labels.shape)
    ]
    label = mechanism.labels[number[0].astype(int), number[1].astype(int)]
    return np.bincount(label, weights=density, minlength=mechanism.n_outputs) / total


def half_plane(rate, distance):
    """Mass of the planar Laplace distribution beyond a line: ∫_0^∞ T(a cosh v) / cosh v dv / π."""
    nodes, weights = np.polynomial.legendre.leggauss(40)
    cuts = np.linspace(0, math.asinh(800 / (rate * distance)), 81)
    v = (cuts[:-1, None] + (nodes + 1) / 2 * np.diff(cuts)[:, None]).ravel()
    weight = (np.diff(cuts)[:, None] / 2 * weights).ravel()
    reach = rate * distance * np.cosh(v)
    return float(((1 + reach) * np.exp(-reach) / np.cosh(v) * weight).sum() / math.pi)


def total_mass(p, n_axes):
    """∫ e^{−‖v‖_p} dv."""
    return (2 * math.gamma(1 + 1 / p)) ** n_axes * math.gamma(1 + n_axes) / math.gamma(1 + n_axes / p)


def by_cubature(mass, x, fine):
    """Sum the density over a product of Gauss–Legendre rules, cut at the edges of squares and ever finer around x."""
    nodes, weights = np.polynomial.legendre.leggauss(fine)
    n_axes = len(x)
    spread = np.array([0.03, 0.15, 0.5, 1.3, 3.0, 7.0, 15.0, 40.0][:: 1 if n_axes < 4 else 2]) / mass.rate
    volume, size, number = np.ones(1), np.zeros((1, 0)), np.zeros(1, dtype=int)
    for axis, edges in enumerate(mass.squares.edges):
        cuts = np.unique(np.concatenate([edges[1:-1], x[axis] + np.concatenate([-spread, [0], spread])]))
        places = (cuts[:-1, None] + (nodes + 1) / 2 * np.diff(cuts)[:, None]).ravel()
        square = np.clip(np.searchsorted(edges, places) - 1, 0, len(edges) - 2)
        volume = np.multiply.outer(volume, (np.diff(cuts)[:, None] / 2 * weights).ravel()).ravel()
        number = np.add.outer(number * (len(edges) - 1), square).ravel()
        size = np.column_stack([np.repeat(size, len(places), axis=0), np.tile(places - x[axis], len(size))])
    density = np.exp(-mass.rate * norm(size, mass.p)) * mass.rate**n_axes / total_mass(mass.p, n_axes)
    return np.bincount(mass.labels.ravel()[number], weights=density * volume, minlength=mass.n_outputs)


def by_layers(mass, x):
    """Integrate e^{−r m} = ∫_m^∞ r e^{−r t} dt, m = ‖v‖_∞, over t: the layer of t is the cube of half side t about x."""
    cuts = np.unique(np.concatenate([np.abs(edges[1:-1] - x[axis]) for axis, edges in enumerate(mass.squares.edges)]))
    ends = np.concatenate([[0.0], cuts, cuts[-1] + np.array([1.0, 5.0, 15.0, 40.0]) / mass.rate])
    nodes, weights = np.polynomial.legendre.leggauss(20)
    t = (ends[:-1, None] + (nodes + 1) / 2 * np.diff(ends)[:, None]).ravel()
    weight = (weights / 2 * np.diff(ends)[:, None]).ravel() * mass.rate * np.exp(-mass.rate * t)
    volume = np.ones((len(t), 1))
    for axis, edges in enumerate(mass.squares.edges):
        walls = np.concatenate([[-np.inf], edges[1:-1], [np.inf]]) - x[axis]
        covered = np.clip(walls[1:], -t[:, None], t[:, None]) - np.clip(walls[:-1], -t[:, None], t[:, None])
        volume = (volume[:, :, None] * covered[:, None, :]).reshape(len(t), -1)
    share = weight @ volume * mass.rate ** len(x) / total_mass(mass.p, len(x))
    return np.bincount(mass.labels.ravel(), weights=share, minlength=mass.n_outputs)


# --- Confidence limits (Clopper and Pearson 1934) ---------------------------------------------------------------------


def clopper_pearson(seen, draws, level):
    """Return the shares at which `seen` or more, and `seen` or fewer, have probability `level`."""
    low = brentq(lambda share: binom.sf(seen - 1, draws, share) - level, 0, 1, xtol=1e-15) if seen else 0.0
    high = brentq(lambda share: binom.cdf(seen, draws, share) - level, 0, 1, xtol=1e-15) if seen < draws else 1.0
    return low, high


# --- Noise on the lattice, word by word -------------------------------------------------------------------------------


# Noise on the lattice, one point at a time: the specification that every implementation follows word by word.
#
# Nothing here is fast and nothing is in floating point. `source()` returns the next 64-bit word, as an integer.
#
# One attempt takes N words, and one more for the coin unless p = 1 or N = 1.
# - Word of an axis: the lowest bit is the sign (1 means negative), the 63 bits above it are the first binary digits of a
#   real number u in (0, 1), the most significant one first. The magnitude is ⌊−ln(u)/b⌋: at least n if u < e^{−bn}.
# - Coin: all 64 bits are the first digits of u'. The attempt is kept if u' < e^{−(a‖v‖_p − b‖v‖_1)}.
# - Negative zero (the sign is set and the magnitude is 0) discards the attempt, and its coin is not looked at.
# - If two numbers with the known digits would give different answers, one more word is taken, which holds the next 64
#   digits, and so on until the answer is certain. No other words are taken.
#
# A batch proceeds in rounds. First every point without a vector takes the words of an attempt, in the order of the points.
# Then the points are settled in the same order, axis by axis, the coin last, each taking further words as it needs them.


# Decimal digits of every computation. A comparison that they cannot decide fails instead of guessing.
PRECISION = 100
CERTAIN = Decimal(10) ** -70


def noise_batch(rate, p, n_axes, count, source):
    """Return `count` vectors of weights e^{−rate ‖v‖_p}."""
    coin = p != 1 and n_axes > 1
    b = noise_proposal_rate(rate, p, n_axes)
    drawn = [None] * count
    while open_ := [point for point in range(count) if drawn[point] is None]:
        words = [[source() for _ in range(n_axes + coin)] for _ in open_]
        for point, attempt in zip(open_, words, strict=True):
            drawn[point] = noise_attempt(attempt, rate, b, p, n_axes, source)
    return drawn


def noise_attempt(words, rate, b, p, n_axes, source):
    """Return the vector of one attempt, or None if it is discarded."""
    signs = [word % 2 for word in words[:n_axes]]
    magnitudes = [noise_magnitude(word // 2, b, source) for word in words[:n_axes]]
    if any(sign == 1 and size == 0 for sign, size in zip(signs, magnitudes, strict=True)):
        return None
    if len(words) > n_axes and not noise_coin(words[n_axes], noise_gap(magnitudes, rate, b, p), source):
        return None
    return [-size if sign else size for sign, size in zip(signs, magnitudes, strict=True)]


def noise_magnitude(digits, b, source):
    """Return ⌊−ln(u)/b⌋ of a number u that starts with 63 given binary digits."""
    known = 63
    while True:
        if digits > 0:
            # Numbers with these digits lie in [digits, digits + 1)/2^known.
            largest = count_thresholds_above(Fraction(digits, 2**known), b)
            least = count_thresholds_above(Fraction(digits + 1, 2**known), b)
            if least == largest:
                return least
        digits, known = 2**64 * digits + source(), known + 64


def noise_coin(digits, exponent, source):
    """Return whether u < e^{−exponent} for a number u that starts with 64 given binary digits."""
    known = 64
    while exponent > 0:
        if not below_exponential(Fraction(digits, 2**known), exponent):
            return False
        if below_exponential(Fraction(digits + 1, 2**known), exponent):
            return True
        digits, known = 2**64 * digits + source(), known + 64
    return True


def count_thresholds_above(u, b):
    """Return how many n ≥ 1 there are with u < e^{−bn}."""
    # Any first guess would do; this one is usually right.
    n = max(0, int((math.log(u.denominator) - math.log(u.numerator)) / b))
    while below_exponential(u, (n + 1) * b):
        n += 1
    while n > 0 and not below_exponential(u, n * b):
        n -= 1
    return n


def below_exponential(u, exponent):
    """Return whether a fraction u ≤ 1 is less than e^{−exponent}, exponent > 0."""
    with localcontext(prec=PRECISION):
        ratio = decimal(u) * decimal(exponent).exp()
        assert abs(ratio - 1) > CERTAIN, "the comparison needs more digits"
        return ratio < 1


def noise_gap(magnitudes, rate, b, p):
    """Return a‖v‖_p − b‖v‖_1."""
    if not any(magnitudes):
        return Fraction(0)
    with localcontext(prec=PRECISION):
        if math.isinf(p):
            norm = Decimal(max(magnitudes))
        else:
            norm = sum(Decimal(size) ** Decimal(p) for size in magnitudes if size) ** (1 / Decimal(p))
        return rate * Fraction(norm) - b * sum(magnitudes)


def noise_proposal_rate(rate, p, n_axes):
    """Return b: the rate itself if p = 1 or N = 1, otherwise the largest n/2^k < rate·N^{−(1 − 1/p)} with n < 2^30."""
    if p == 1 or n_axes == 1:
        return rate
    with localcontext(prec=PRECISION):
        limit = decimal(rate) / n_axes
        if not math.isinf(p):
            limit *= Decimal(n_axes) ** (1 / Decimal(p))
        # Scale the limit to more than 2^29 and at most 2^30; equality is a matter of rounding here.
        unit = Decimal(1)
        while limit / unit > 2**30 + CERTAIN:
            unit *= 2
        while limit / unit <= 2**29 + CERTAIN:
            unit /= 2
        return math.floor(limit / unit - CERTAIN) * Fraction(unit)


def decimal(value):
    """Return a fraction as a decimal number, rounded to the precision of the present context."""
    return Decimal(value.numerator) / Decimal(value.denominator)


# --- Budgets ----------------------------------------------------------------------------------------------------------


class NaiveLedger:
    """What a ledger should do, one request at a time."""

    def __init__(self, limit, beyond, radius):
        self.limit, self.beyond, self.radius = Fraction(repr(limit)), beyond, radius
        self.spent, self.last = {}, {}

    def ask(self, mechanism, user, point, output):
        last = self.last.get((user, id(mechanism)))
        if last is not None and self.radius is not None and math.dist(point, last[1]) <= self.radius:
            return last[0]
        after = self.spent.get(user, 0) + Fraction(repr(mechanism.epsilon))
        if after <= self.limit:
            self.spent[user], self.last[user, id(mechanism)] = after, (output, point)
            return output
        return -1 if self.beyond == "refuse" or last is None else last[0]


class NaiveTimedLedger:
    """What a ledger with a window, a schedule or both should do, one request at a time, from the definition.

    Lengths of time are whole seconds, or None; moments are numbers of any kind, rounded to microseconds, halves up.
    """

    def __init__(self, limit, window, every, beyond="refuse", radius=None):
        self.limit, self.window, self.every = Fraction(repr(limit)), window, every
        self.beyond, self.radius = beyond, radius
        self.charges, self.last = {}, {}

    @staticmethod
    def moment(time):
        return Fraction(math.floor(Fraction(time) * 10**6 + Fraction(1, 2)), 10**6)

    def ask(self, mechanism, user, time, point, output):
        """The answer, and whether it is a refusal because of the time."""
        now, own = self.moment(time), self.charges.setdefault(user, [])
        last = self.last.get((user, id(mechanism)))
        if any(now < when for when, _ in own):
            return -1, True
        if last is not None:
            if self.every is not None and last[1] // self.every == now // self.every:
                return last[0], False
            if self.radius is not None and math.dist(point, last[2]) <= self.radius:
                return last[0], False
        cost = Fraction(repr(mechanism.epsilon))
        if self.spent(user, now) + cost <= self.limit:
            own.append((now, cost))
            self.last[user, id(mechanism)] = (output, now, point)
            return output, False
        return (-1 if self.beyond == "refuse" or last is None else last[0]), False

    def spent(self, user, now):
        """The charges of the closed interval of the window's length that ends now, or at the last draw if later."""
        own = self.charges.get(user, [])
        end = max([self.moment(now), *(when for when, _ in own)])
        return sum(cost for when, cost in own if self.window is None or when >= end - self.window)

    def most(self):
        """The largest sum of anybody's charges in any closed interval of the window's length."""
        worst = Fraction(0)
        for own in self.charges.values():
            for first, (start, _) in enumerate(own):
                inside = itertools.takewhile(lambda charge: charge[0] <= start + self.window, own[first:])  # noqa: B023
                worst = max(worst, sum(cost for _, cost in inside))
        return worst


def stored_id(value):
    """The id as the ledger stores it, None if it must be refused: the rule of docs/budgets.md."""
    if type(value) is int:
        return str(value) if len(str(abs(value))) <= 1024 else None
    if type(value) is not str or not 1 <= len(value) <= 1024:
        return None
    hopeless = any(letter == "\0" or "\ud800" <= letter <= "\udfff" for letter in value)
    return None if hopeless else value


# --- The paper's measure of privacy: all pairs of places --------------------------------------------------------------


def all_pair_ratios(rows, points, epsilon, p, slack):
    """|ln z_k(x) − ln z_k(x')| / (ε d) of all pairs and outputs; how many break mDP, exactly and by more than a slack."""
    ratios, violations, beyond_slack = [], 0, 0
    for i, j in itertools.combinations(range(len(points)), 2):
        allowed = epsilon * float(np.linalg.norm(points[i] - points[j], p))
        if allowed == 0:
            continue
        for a, b in zip(rows[i], rows[j], strict=True):
            change = 0.0 if a == b else math.inf if 0 in (a, b) else abs(math.log(a) - math.log(b))
            violations += change > allowed
            beyond_slack += max(a, b) > math.exp(allowed) * min(a, b) + slack
            ratios.append(change / allowed)
    return ratios, violations, beyond_slack


def steepest_site(breakpoints, degree, rows, epsilon, q):
    """The worst ‖g‖_q / (ε b) of control rows: every site of every cell, g by the derivative's control values."""
    shape = tuple(degree * (len(points) - 1) + 1 for points in breakpoints)
    table = rows.reshape(*shape, -1)
    worst = 0.0
    for cell in itertools.product(*(range(len(points) - 1) for points in breakpoints)):
        for a in itertools.product(range(degree + 1), repeat=len(breakpoints)):
            site = tuple(degree * i + step for i, step in zip(cell, a, strict=True))
            value, slopes = table[site], []
            for axis, points in enumerate(breakpoints):
                ahead, behind = list(site), list(site)
                ahead[axis] += a[axis] < degree
                behind[axis] -= a[axis] > 0
                rise = (degree - a[axis]) * (table[tuple(ahead)] - value) + a[axis] * (value - table[tuple(behind)])
                slopes.append(rise / (points[cell[axis] + 1] - points[cell[axis]]))
            assert (value > 0).all()
            worst = max(worst, float((np.linalg.norm(slopes, ord=q, axis=0) / (epsilon * value)).max()))
    return worst


def reports_within(mechanism, problem, share):
    """Return the least distance within which a share of reports falls, output by output and record by record."""
    parts = []
    for x, weight in zip(problem.records, problem.prior, strict=True):
        row = mechanism.probabilities(x[None, :])[0]
        parts += [(distance(x, y, mechanism.p), weight * z) for y, z in zip(problem.outputs, row, strict=True)]
    total = 0.0
    for length, mass in sorted(parts):
        total += mass
        if total >= share:
            return length
    return max(parts)[0]


# --- The adversary ----------------------------------------------------------------------------------------------------


def naive_posterior_costs(rows, prior, places, said):
    """π(x) Π_j Pr[y_j | x] for one sequence of reports, and the cost of a guess as a function."""
    weights = [prior[i] * math.prod(rows[i][k] for k in said) for i in range(len(places))]

    def cost(guess):
        return sum(w * math.dist(x, guess) for w, x in zip(weights, places, strict=True))

    return weights, cost


def naive_inference_error(rows, prior, places, reports):
    """Σ_y min_x̂ Σ_x π(x) Pr[y | x] |x − x̂|, sequence by sequence; the best guess by search, which is convex."""
    total = 0.0
    for said in itertools.product(range(len(rows[0])), repeat=reports):
        _, cost = naive_posterior_costs(rows, prior, places, said)
        best = min(places, key=cost)
        found = minimize(cost, np.mean(places, axis=0), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-13})
        total += min(cost(best), float(found.fun))
    return total


def naive_named(rows, prior, places, reports):
    """Σ_y max_x π(x) Pr[y | x]: how often the likeliest place is the true one."""
    sequences = itertools.product(range(len(rows[0])), repeat=reports)
    return sum(max(naive_posterior_costs(rows, prior, places, said)[0]) for said in sequences)


def chernoff(first, second):
    """C = −min_s ln Σ_y p(y)^s q(y)^(1−s), and the s of the minimum."""
    found = minimize_scalar(
        lambda s: math.log(float((first**s * second ** (1 - s)).sum())), bounds=(0, 1), method="bounded"
    )
    return -float(found.fun), float(found.x)


# --- Paths through cells of different ε -------------------------------------------------------------------------------


def steiner_distances(breakpoints, values, points, per_side):
    """Lengths of paths between all pairs of points of a plane, straight within cells, that cross borders at nodes.

    Every side of a cell has `per_side` nodes, so the lengths are at least those of the best paths.
    """
    xs, ys = breakpoints
    spread = np.linspace(0, 1, per_side)
    across = [
        np.column_stack([a + (b - a) * spread, np.full(per_side, y)]) for a, b in itertools.pairwise(xs) for y in ys
    ]
    along = [
        np.column_stack([np.full(per_side, x), a + (b - a) * spread]) for a, b in itertools.pairwise(ys) for x in xs
    ]
    places = np.concatenate([points, np.unique(np.concatenate(across + along), axis=0)])
    n = len(points)
    lengths = np.full((len(places), len(places)), np.inf)
    for i, (left, right) in enumerate(itertools.pairwise(xs)):
        for j, (low, high) in enumerate(itertools.pairwise(ys)):
            x, y = places.T
            inside = np.flatnonzero((left <= x) & (x <= right) & (low <= y) & (y <= high))
            here = places[inside]
            cost = values[i][j] * np.sqrt(((here[:, None] - here[None, :]) ** 2).sum(axis=-1))
            block = np.ix_(inside, inside)
            lengths[block] = np.minimum(lengths[block], cost)
    graph = sparse.csr_array(np.where(np.isfinite(lengths), lengths, 0.0))
    return np.minimum(dijkstra(graph, indices=np.arange(n))[:, :n], segment_costs(breakpoints, values, points))


def segment_costs(breakpoints, values, points):
    """∫ε ds along the straight segments between all pairs of points: each cell's ε times the length inside it."""
    a, move = points[:, None], points[None, :] - points[:, None]
    length = np.sqrt((move**2).sum(axis=-1))
    total = np.zeros(length.shape)
    for i, j in itertools.product(range(len(breakpoints[0]) - 1), range(len(breakpoints[1]) - 1)):
        enter, leave = np.zeros(length.shape), np.ones(length.shape)
        for axis, k in ((0, i), (1, j)):
            with np.errstate(divide="ignore", invalid="ignore"):
                low = (breakpoints[axis][k] - a[..., axis]) / move[..., axis]
                high = (breakpoints[axis][k + 1] - a[..., axis]) / move[..., axis]
            parallel = move[..., axis] == 0
            within = (breakpoints[axis][k] <= a[..., axis]) & (a[..., axis] <= breakpoints[axis][k + 1])
            enter = np.maximum(enter, np.where(parallel, np.where(within, 0, 2), np.minimum(low, high)))
            leave = np.minimum(leave, np.where(parallel, 1, np.maximum(low, high)))
        total += values[i][j] * length * np.maximum(leave - enter, 0)
    return total


def naive_trace_error(rows, prior, transition, places, length, when, known):
    """Σ_y min_x̂ Σ_paths Pr[path] Pr[y | path] |x_when − x̂| over all reports up to time `known`, path by path."""
    total = 0.0
    for said in itertools.product(range(len(rows[0])), repeat=known + 1):
        weights = [0.0] * len(places)
        for path in itertools.product(range(len(places)), repeat=length):
            chance = prior[path[0]] * math.prod(transition[a][b] for a, b in itertools.pairwise(path))
            weights[path[when]] += chance * math.prod(rows[path[t]][k] for t, k in enumerate(said))
        costs = [sum(w * math.dist(x, guess) for w, x in zip(weights, places, strict=True)) for guess in places]
        found = minimize(
            lambda guess, weights=weights: sum(w * math.dist(x, guess) for w, x in zip(weights, places, strict=True)),
            np.mean(places, axis=0), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-13},
        )  # fmt: skip
        total += min(*costs, float(found.fun))
    return total
