"""Noise on the lattice, one point at a time: the specification that every implementation follows word by word.

Nothing here is fast and nothing is in floating point. `source()` returns the next 64-bit word, as an integer.

One attempt takes N words, and one more for the coin unless p = 1 or N = 1.
- Word of an axis: the lowest bit is the sign (1 means negative), the 63 bits above it are the first binary digits of a
  real number u in (0, 1), the most significant one first. The magnitude is ⌊−ln(u)/b⌋: at least n if u < e^{−bn}.
- Coin: all 64 bits are the first digits of u'. The attempt is kept if u' < e^{−(a‖v‖_p − b‖v‖_1)}.
- Negative zero (the sign is set and the magnitude is 0) discards the attempt, and its coin is not looked at.
- If two numbers with the known digits would give different answers, one more word is taken, which holds the next 64
  digits, and so on until the answer is certain. No other words are taken.

A batch proceeds in rounds. First every point without a vector takes the words of an attempt, in the order of the points.
Then the points are settled in the same order, axis by axis, the coin last, each taking further words as it needs them.
"""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

# Decimal digits of every computation. A comparison that they cannot decide fails instead of guessing.
PRECISION = 100
CERTAIN = Decimal(10) ** -70


def draw_batch(rate, p, n_axes, count, source):
    """Return `count` vectors of weights e^{−rate ‖v‖_p}."""
    coin = p != 1 and n_axes > 1
    b = proposal_rate(rate, p, n_axes)
    drawn = [None] * count
    while open_ := [point for point in range(count) if drawn[point] is None]:
        words = [[source() for _ in range(n_axes + coin)] for _ in open_]
        for point, attempt in zip(open_, words, strict=True):
            drawn[point] = settle(attempt, rate, b, p, n_axes, source)
    return drawn


def settle(words, rate, b, p, n_axes, source):
    """Return the vector of one attempt, or None if it is discarded."""
    signs = [word % 2 for word in words[:n_axes]]
    magnitudes = [magnitude(word // 2, b, source) for word in words[:n_axes]]
    if any(sign == 1 and size == 0 for sign, size in zip(signs, magnitudes, strict=True)):
        return None
    if len(words) > n_axes and not coin(words[n_axes], gap(magnitudes, rate, b, p), source):
        return None
    return [-size if sign else size for sign, size in zip(signs, magnitudes, strict=True)]


def magnitude(digits, b, source):
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


def coin(digits, exponent, source):
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


def gap(magnitudes, rate, b, p):
    """Return a‖v‖_p − b‖v‖_1."""
    if not any(magnitudes):
        return Fraction(0)
    with localcontext(prec=PRECISION):
        if math.isinf(p):
            norm = Decimal(max(magnitudes))
        else:
            norm = sum(Decimal(size) ** Decimal(p) for size in magnitudes if size) ** (1 / Decimal(p))
        return rate * Fraction(norm) - b * sum(magnitudes)


def proposal_rate(rate, p, n_axes):
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
