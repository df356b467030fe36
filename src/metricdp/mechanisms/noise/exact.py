"""Exact noise on the lattice Z^N: Pr[v] ∝ e^{−a‖v‖_p} for every norm p ≥ 1 and up to four axes.

An *attempt* draws each coordinate on its own, with weights e^{−b|v_ℓ|}, and is kept with probability
e^{−(a‖v‖_p − b‖v‖_1)}, where b‖v‖_1 ≤ a‖v‖_p for every v. Kept attempts therefore have weights e^{−a‖v‖_p}. Both steps
ask where a uniform real number u lies: |v_ℓ| = ⌊−ln(u)/b⌋, and the attempt is kept if −ln(u') > a‖v‖_p − b‖v‖_1.

Of a real number only the first 64 binary digits are drawn. Floating point gives an interval that certainly contains
−ln(u), whatever the missing digits are. If the whole interval gives one answer, that is the answer. Otherwise the
question is settled with decimal arithmetic of increasing precision, and with more digits of u where they matter.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricdp._chunks import slices
from metricdp._validation import FloatArray, integer, norm_order, reject
from metricdp.drawing.randomness import RandomSource
from metricdp.errors import InvalidInputError
from metricdp.geometry.lattice import LARGEST_MULTIPLE, lattice_step

__all__ = ["MOST_AXES", "LatticeNoise", "dyadic_below", "noise_on", "noise_step"]

Integers = NDArray[np.int64]
Words = NDArray[np.uint64]

MOST_AXES = 4

# Rates outside are refused. Below, coordinates could exceed 64 bits; above, the noise is 0 for all practical purposes.
_LEAST_RATE, _LARGEST_RATE = Fraction(1, 2**44), Fraction(2**4)

# Binary digits of the rates that this module chooses: 2^-29 of a rate is nothing, and floats hold them exactly.
_RATE_BITS = 30

# A word has the sign in its lowest bit and the first digits of u above it.
_DIGITS = 63

# So many leading zeros of u only come from a source that is broken. Without them −ln(u) < 2^14, and |v_ℓ| < 2^60.
_MOST_ZEROS = _DIGITS + 64 * 256

# Decimal digits with which an exact comparison starts; they are doubled until it is decided.
_FIRST_PRECISION = 40

# Points that are worked on at once: their numbers stay in the processor's cache.
_BLOCK = 2**12

# The lattice's step is at most this over the rate, so that noise on the lattice differs from continuous noise by less
# than 2^-34 of its probabilities.
_FINEST_DECAY = 2.0**-16


class LatticeNoise:
    """Noise v ∈ Z^N with Pr[v] ∝ e^{−rate ‖v‖_p}.

    Parameters
    ----------
    rate : Fraction or float
        a, exactly: a fraction that a floating-point number can hold, from 2^-44 to 2^4.
    p : float
        Order of the norm, from 1 to inf.
    n_axes : int
        N, from 1 to 4.

    Attributes
    ----------
    proposal_rate : Fraction
        b, the rate of the attempts' coordinates: `rate` itself if p = 1 or N = 1; otherwise the largest fraction of 30
        binary digits that is strictly less than a·N^{−(1 − 1/p)}, so that b‖v‖_1 < a‖v‖_p for every v other than 0.
    words_per_attempt : int
        N, and one more unless p = 1 or N = 1.

    Guarantee
    ---------
    Draws are independent and each v has exactly the stated probability, provided that the source's words are uniform
    and independent, that additions, multiplications, divisions and square roots of floats obey IEEE 754, and that
    `decimal` rounds logarithms and exponentials correctly, as it documents. No function of the platform's mathematical
    library is used. One exception is too rare to be seen: a number u that starts with 16,447 zeros is taken for a sign
    of a broken source and raises an error; without it |v_ℓ| is below 2^60.

    Which words are used for what does not depend on how decisions are computed. Points are drawn in rounds. In each
    round every point that has no vector yet takes `words_per_attempt` words, in the order of the points, by a single
    call. Then the points are looked at in order, in each the coordinates in order and the coin last; where the digits
    of a number u leave its answer open, and only there, single words are taken, with 64 further digits each. The
    coin of an attempt with a negative zero is not looked at.

    Examples
    --------
    >>> from metricdp.drawing.randomness import SecureRandom
    >>> noise = LatticeNoise(dyadic_below(0.4 * 2**-20), p=2.0, n_axes=2)
    >>> noise.draw(5, SecureRandom()).shape
    (5, 2)
    """

    def __init__(self, rate: Fraction | float, p: float, n_axes: int) -> None:
        self.rate, self.p = _checked_rate(rate), norm_order(p)
        self.n_axes = integer("n_axes", n_axes, 1)
        if self.n_axes > MOST_AXES:
            raise reject("n_axes", f"at most {MOST_AXES}", self.n_axes)
        self._has_coin = self.p != 1 and self.n_axes > 1
        self.words_per_attempt = self.n_axes + self._has_coin
        self.proposal_rate = _proposal_rate(self.rate, self.p, self.n_axes) if self._has_coin else self.rate
        self._a, self._b = float(self.rate), float(self.proposal_rate)  # exact
        # For the errors of a logarithm; see `_enclosures`.
        self._allowance = 2.0**-49

    def draw(self, count: int, source: RandomSource) -> Integers:
        """Return `count` independent vectors as (count, N) integers."""
        drawn = np.empty((count, self.n_axes), dtype=np.int64)
        open_ = np.arange(count)
        while len(open_):
            words = source.words(len(open_) * self.words_per_attempt).reshape(len(open_), -1)
            kept = np.empty(len(open_), dtype=bool)
            for part in slices(len(open_), _BLOCK):
                vectors, kept[part] = self._attempt(words[part], source)
                drawn[open_[part]] = vectors  # those not kept are overwritten later
            open_ = open_[~kept]
        return drawn

    def _attempt(self, words: Words, source: RandomSource) -> tuple[Integers, NDArray[np.bool_]]:
        """Return the vectors (points, axes) that words (points, words) stand for, and which of them are kept."""
        axes = slice(self.n_axes)
        lows, highs = self._enclosures(words)
        magnitudes, others = self._floors(lows[axes]), self._floors(highs[axes])
        doubtful = (magnitudes != others).any(axis=0)
        negative = np.bitwise_and(words.T[axes], np.uint64(1), order="C").view(np.int64)
        vectors = magnitudes.astype(np.int64)
        kept = np.logical_not((vectors < negative).any(axis=0))  # no negative zeros
        if self._has_coin:
            gap, error = self._gap(magnitudes)
            heads = lows[-1] > gap + error
            doubtful |= ~heads & (highs[-1] >= gap - error)
            kept &= heads
        # In two's complement −v = ~v + 1.
        vectors = ((vectors ^ -negative) + negative).T
        for point in np.flatnonzero(doubtful):
            vectors[point], kept[point] = self._settle(words[point].tolist(), source)
        return vectors, kept

    def _enclosures(self, words: Words) -> tuple[FloatArray, FloatArray]:
        """Return a lower and an upper bound of −ln(u) for every word, as (words, points).

        With D the upper 63 bits of a word, u lies in [D, D + 1)/2^63. Let r = 2^-53 and E = −ln(D/2^63). Rounding D to
        a float moves E by at most r, the missing digits move it by at most 1/D, and `_minus_log` is off by at most
        8r (E + 2). What follows (here one subtraction; in `_floors` a rounded reciprocal and a multiplication) costs
        another 3r E. The allowance is 16r (E + 2) + 2/D.
        """
        digits = np.right_shift(words.T, np.uint64(1), order="C").view(np.int64)
        unit = np.multiply(digits, 2.0**-_DIGITS, dtype=np.float64)
        none = None if digits.all() else digits == 0
        if none is not None:
            unit[none] = 1.0
        middle = _minus_log(unit)
        error = np.divide(2.0 ** (1 - _DIGITS), unit, out=unit)
        error += (middle + 2.0) * self._allowance
        lows, highs = middle - error, np.add(middle, error, out=middle)
        if none is not None:
            lows[none], highs[none] = 0.0, math.inf
        return lows, highs

    def _floors(self, exponentials: FloatArray) -> FloatArray:
        """Return ⌊exponentials / b⌋, in the same place."""
        exponentials *= 1 / self._b
        return np.floor(exponentials, out=exponentials)

    def _gap(self, magnitudes: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return a‖v‖_p − b‖v‖_1 for whole magnitudes (axes, points) below 2^50, and how far off it may be.

        With r = 2^-53: squares, their sum and the root are off by at most 4r of the norm, its product with a by one
        more, b‖v‖_1 ≤ a‖v‖_p by another and the difference by another; 16r covers that. For other norms see `_p_norm`.
        """
        if math.isinf(self.p):
            norm, relative = magnitudes.max(axis=0), 2.0**-49
        elif self.p == 2:
            norm, relative = np.sqrt((magnitudes * magnitudes).sum(axis=0)), 2.0**-49
        else:
            norm, relative = _p_norm(magnitudes, self.p), 2.0**-43
        norm *= self._a
        return norm - self._b * magnitudes.sum(axis=0), norm * relative

    def _settle(self, words: Sequence[int], source: RandomSource) -> tuple[list[int], bool]:
        """Return the vector of one point's words and whether it is kept, from exact comparisons."""
        axes = words[: self.n_axes]
        magnitudes = [_geometric(_Unit(word >> 1, _DIGITS), self.proposal_rate, source) for word in axes]
        vector = [-size if word & 1 else size for word, size in zip(axes, magnitudes, strict=True)]
        if any(word & 1 and size == 0 for word, size in zip(axes, magnitudes, strict=True)):
            return vector, False
        return vector, not self._has_coin or self._coin(_Unit(words[-1], 64), magnitudes, source)

    def _coin(self, unit: _Unit, magnitudes: Sequence[int], source: RandomSource) -> bool:
        """Return whether −ln(u) > a‖v‖_p − b‖v‖_1.

        The right side is 0 for v = 0 and otherwise positive and algebraic, so that e to its power is transcendental: no
        comparison ends in a tie.
        """
        if not any(magnitudes):
            return True
        while True:
            if self._exceeds_gap(unit.digits + 1, unit.known, magnitudes):
                return True
            if unit.digits and not self._exceeds_gap(unit.digits, unit.known, magnitudes):
                return False
            unit.extend(source)

    def _exceeds_gap(self, digits: int, known: int, magnitudes: Sequence[int]) -> bool:
        """Return whether −ln(digits/2^known) > a‖v‖_p − b‖v‖_1."""
        precision = _FIRST_PRECISION
        while True:
            with decimal.localcontext(_context(precision)):
                norm = _decimal(self.rate) * _exact_norm(magnitudes, self.p)
                logarithm, error = _exact_minus_log(digits, known)
                difference = logarithm - norm + _decimal(self.proposal_rate) * sum(magnitudes)
                # 13 roundings in the norm, seven in products and sums; none exceeds 10^(1 − precision)/2 of the norm.
                error += norm.scaleb(3 - precision)
                if abs(difference) > 2 * error:
                    return difference > 0
            precision *= 2


def noise_step(bounds: FloatArray, rate: float) -> float:
    """Return the spacing of the lattice for points and noise: fine against the box and against the noise."""
    coarse = lattice_step(bounds)
    least, most = float(_LEAST_RATE) / coarse, _FINEST_DECAY / 2 * LARGEST_MULTIPLE / float(np.abs(bounds).max())
    if not least <= rate <= most:
        msg = (
            f"Noise over this box can be drawn exactly at rates from {least:.3g} to {most:.3g} per unit of distance, "
            f"got {rate:g}; change `epsilon`, or the unit of distance."
        )
        raise InvalidInputError(msg)
    return min(coarse, math.ldexp(1.0, math.frexp(_FINEST_DECAY / rate)[1] - 1))


def noise_on(step: float, rate: float, p: float, n_axes: int) -> LatticeNoise:
    """Return noise that decays at most at `rate` per unit of distance, on multiples of `step`."""
    return LatticeNoise(dyadic_below(Fraction(rate) * Fraction(step)), p, n_axes)


class _Unit:
    """A real number in [0, 1) of which the first `known` binary digits are drawn."""

    def __init__(self, digits: int, known: int) -> None:
        self.digits, self.known = digits, known

    def extend(self, source: RandomSource) -> None:
        """Draw 64 more digits."""
        if self.digits == 0 and self.known >= _MOST_ZEROS:
            raise RuntimeError("The source of random words returns nothing but zeros.")
        self.digits = self.digits << 64 | int(source.words(1)[0])
        self.known += 64


def _geometric(unit: _Unit, rate: Fraction, source: RandomSource) -> int:
    """Return ⌊−ln(u)/rate⌋, which is n or more with probability e^{−rate·n}."""
    while True:
        if unit.digits:
            least = _exact_floor(unit.digits + 1, unit.known, rate)
            if least == _exact_floor(unit.digits, unit.known, rate):
                return least
        unit.extend(source)


def _exact_floor(digits: int, known: int, rate: Fraction) -> int:
    """Return ⌊−ln(digits/2^known)/rate⌋; the quotient is 0 or irrational, so enough precision always decides."""
    if digits == 1 << known:
        return 0
    precision = _FIRST_PRECISION
    while True:
        with decimal.localcontext(_context(precision)):
            logarithm, error = _exact_minus_log(digits, known)
            # Twice the error, because the quotients are rounded too.
            low, high = ((logarithm + side * 2 * error) / _decimal(rate) for side in (-1, 1))
            if math.floor(low) == math.floor(high):
                return math.floor(low)
        precision *= 2


def _exact_minus_log(digits: int, known: int) -> tuple[Decimal, Decimal]:
    """Return −ln(digits/2^known) and a bound of its error, in the present context."""
    scale = known * _log_2(decimal.getcontext().prec)
    # Two logarithms, a product and a difference, none larger than `scale`, and each rounded once.
    return scale - Decimal(digits).ln(), scale.scaleb(2 - decimal.getcontext().prec)


@lru_cache(maxsize=16)
def _log_2(precision: int) -> Decimal:
    return Decimal(2).ln(_context(precision))


def _exact_norm(magnitudes: Sequence[int], p: float) -> Decimal:
    """Return ‖v‖_p to within 13 roundings of the present context, v not 0.

    For general p it is m (Σ t_ℓ)^{1/p} with m the largest magnitude and t_ℓ = e^{−x_ℓ}, x_ℓ = p ln(m/|v_ℓ|). With a
    rounding of r, x_ℓ is off by r p + 2r x_ℓ. The first part changes the norm by r of itself, whatever p is. The
    second changes the sum by at most 2N r/e, because x e^{−x} ≤ 1/e. The sum is at least 1 and loses another 4r to
    exponentials and additions; then come a logarithm, a quotient, an exponential and a product.
    """
    largest = max(magnitudes)
    if math.isinf(p):
        return Decimal(largest)
    if p == 2:
        return Decimal(sum(size * size for size in magnitudes)).sqrt()
    order = Decimal(p)
    total = sum((order * (Decimal(size) / largest).ln()).exp() for size in magnitudes if size)
    return largest * (Decimal(total).ln() / order).exp()


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


def _context(precision: int) -> decimal.Context:
    """Return a context in which nothing that is needed here overflows."""
    return decimal.Context(prec=precision, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)


# The logarithm's series is centred at √½, so that mantissas from ½ to 1 are equally far from it on both sides.
_CENTRE = math.sqrt(0.5)
_LOG_CENTRE, _LOG_2 = (float(Decimal(value).ln(_context(40))) for value in (_CENTRE, 2))
_ATANH = [1 / (2 * k + 1) for k in range(9)]
_EXP = [1 / math.factorial(k) for k in range(13)]


def _minus_log(x: FloatArray) -> FloatArray:
    """Return −ln(x) of positive floats, off by at most 2^-50 (|ln x| + 2).

    x = m 2^k with ½ ≤ m < 1, and ln(m/c) = 2 atanh(s) = 2s (1 + s²/3 + s⁴/5 + …) with s = (m − c)/(m + c), |s| < 0.172.

    Errors, with r = 2^-53: m − c is exact (Sterbenz), m + c and the quotient are rounded, so s is off by 2r of itself.
    The series is cut off after s^16/17, which leaves less than 0.02944^9/19/(1 − 0.02944) < 8.2r; its other errors are
    below 2r, because the terms after the first come to less than 0.011. With two more roundings 2s·series < 0.347 is
    off by at most 0.347 (2 + 8.2 + 2 + 2) r < 5r. Adding ln c, itself rounded, costs 1r. k ln 2 is off by
    2r (|ln x| + 0.7) and the last sum by r (|ln x| + 1). Altogether that is less than r (3|ln x| + 9); the bound is
    r (8|ln x| + 16).
    """
    mantissa, exponent = np.frexp(x)
    s = mantissa - _CENTRE
    mantissa += _CENTRE
    s /= mantissa
    square = np.multiply(s, s, out=mantissa)
    series = square * _ATANH[-1]
    for coefficient in _ATANH[-2:0:-1]:
        series += coefficient
        series *= square
    series += _ATANH[0]
    series *= s
    series *= -2.0
    series -= _LOG_CENTRE
    series -= exponent * _LOG_2
    return series


def _exp(y: FloatArray) -> FloatArray:
    """Return e^y for −700 ≤ y ≤ 2, off by at most 2^-50 (|y| + 2) of itself.

    y = k ln 2 + z with |z| < 0.347. In units of r = 2^-53: k ln 2 is off by 2r (|y| + 0.4), the difference by r; the
    series up to z^12 leaves less than 3r, and its own roundings come to less than 4r.
    """
    exponent = np.rint(y * (1 / _LOG_2))
    z = y - exponent * _LOG_2
    series = z * _EXP[-1]
    for coefficient in _EXP[-2:0:-1]:
        series += coefficient
        series *= z
    series += _EXP[0]
    return np.asarray(np.ldexp(series, exponent.astype(np.int32)))


def _p_norm(magnitudes: FloatArray, p: float) -> FloatArray:
    """Return ‖v‖_p of whole magnitudes (axes, points), off by at most 2^-44 of itself.

    It is m (Σ t_ℓ)^{1/p} with m the largest magnitude and t_ℓ = e^{−x_ℓ}, x_ℓ = p ln(m/|v_ℓ|). Together with the
    exponential's own error, x_ℓ is off by at most 2^-47 p + 2^-47 x_ℓ. The first part changes the norm by a factor of
    at most e^{2^-47}, whatever p is; the second changes t_ℓ by at most 2^-47/e and the norm by a factor of at most
    1 + N 2^-47/e. The last logarithm and exponential are off by less than 2^-48 each. A magnitude of 0 counts as
    2^-64 m, and a term below e^-700 as e^-700.
    """
    largest = magnitudes.max(axis=0)  # 0 for the vector 0, whose norm is 0 whatever the terms say
    share = np.maximum(magnitudes / np.maximum(largest, 1.0), 2.0**-64)
    terms = _exp(-p * np.clip(_minus_log(share), 0.0, 700 / p))
    return np.asarray(largest * _exp(_minus_log(terms.sum(axis=0)) / -p))


def dyadic_below(value: Fraction | float) -> Fraction:
    """Return the largest fraction n/2^k with n below 2^30 that is at most `value`, a positive number.

    Examples
    --------
    >>> dyadic_below(0.75), dyadic_below(Fraction(1, 3))
    (Fraction(3, 4), Fraction(357913941, 1073741824))
    """
    exact = _exact_fraction("value", value)
    if exact <= 0:
        raise reject("value", "a positive finite number", repr(value))
    unit = _unit_of(exact)
    return math.floor(exact / unit) * unit


def _strictly_below(value: Fraction) -> Fraction:
    """Return the largest fraction n/2^k with n below 2^30 that is less than `value`."""
    unit = _unit_of(value)
    if value == 2 ** (_RATE_BITS - 1) * unit:
        unit /= 2  # below a power of two, fractions lie twice as close
    return (math.ceil(value / unit) - 1) * unit


def _unit_of(value: Fraction) -> Fraction:
    """Return the power of two of which `value` is at least 2^29 and less than 2^30 times."""
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    if Fraction(2) ** exponent > value:
        exponent -= 1
    return Fraction(2) ** (exponent - _RATE_BITS + 1)


def _proposal_rate(rate: Fraction, p: float, n_axes: int) -> Fraction:
    """Return the largest fraction of 30 binary digits strictly below rate·N^{−(1 − 1/p)}."""
    # The only rational powers, with p = 1: a floating-point p is a fraction, and N is 2, 3 or 4.
    if math.isinf(p):
        return _strictly_below(rate / n_axes)
    if p == 2 and n_axes == 4:
        return _strictly_below(rate / 2)
    precision = _FIRST_PRECISION
    while True:
        with decimal.localcontext(_context(precision)):
            power = Fraction(((1 / Decimal(p) - 1) * Decimal(n_axes).ln()).exp())
        # Five roundings, magnified 1.4 times at most, because the exponent is less than that.
        error = Fraction(1, 10 ** (precision - 2))
        low, high = (_strictly_below(rate * power * (1 + side * error)) for side in (-1, 1))
        if low == high:
            return low
        precision *= 2


def _checked_rate(value: Fraction | float) -> Fraction:
    rate = _exact_fraction("rate", value)
    if not _LEAST_RATE <= rate <= _LARGEST_RATE:
        raise reject("rate", "from 2^-44 to 2^4", f"{float(rate):g}")
    if Fraction(float(rate)) != rate:
        raise reject("rate", "a fraction that a floating-point number can hold", rate)
    return rate


def _exact_fraction(name: str, value: Any) -> Fraction:
    try:
        return Fraction(value)
    except (TypeError, ValueError, OverflowError):
        raise reject(name, "a positive finite number", repr(value)) from None
