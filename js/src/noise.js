/**
 * Exact noise on the lattice Z^N: Pr[v] ∝ e^{−a‖v‖_p} for every norm p ≥ 1 and up to four axes.
 *
 * An attempt draws each coordinate on its own, with weights e^{−b|v_ℓ|}, and is kept with probability
 * e^{−(a‖v‖_p − b‖v‖_1)}, where b‖v‖_1 ≤ a‖v‖_p for every v. Both steps ask where a uniform real number u lies: |v_ℓ| =
 * ⌊−ln(u)/b⌋, and the attempt is kept if −ln(u') > a‖v‖_p − b‖v‖_1. Of u only the first 64 binary digits are drawn. Floats
 * give an interval that certainly contains −ln(u), whatever the missing digits are; if it leaves the answer open, big
 * integers settle it, with more digits of u where they matter. No function of the engine's Math is used but floor and
 * sqrt, which are exact and correctly rounded.
 */

import { must, require } from "./errors.js";
import { floorDiv } from "./functions.js";
import { LARGEST_MULTIPLE, farthest, latticeStep, norm } from "./lattice.js";
import * as norms from "./norms.js";
import { Reals, exactNorm, minusLog } from "./norms.js";
import { bitLength, fraction, frexp, pow2 } from "./numbers.js";
import { bigWord } from "./words.js";

/**
 * @typedef {import("./words.js").WordSource} WordSource
 * @typedef {import("./numbers.js").Fraction} Fraction
 * @typedef {import("./norms.js").Interval} Interval
 */

const MOST_AXES = 4;
const LEAST_RATE = 2 ** -44;
const LARGEST_RATE = 2 ** 4;
const RATE_BITS = 30;

// A word has the sign in its lowest bit and the first digits of u above it.
const DIGITS = 63;

// So many leading zeros of u only come from a source that is broken.
const MOST_ZEROS = DIGITS + 64 * 256;

// Binary digits with which an exact comparison starts; they are doubled until it is decided.
const FIRST_BITS = 160;

// The lattice's step is at most this over the rate.
const FINEST_DECAY = 2 ** -16;

/** Return the lattice's spacing for points and noise: fine against the box and against the noise. @param {import("./header.js").Box} box @param {number} rate */
export function noiseStep(box, rate) {
  const coarse = latticeStep(box);
  const possible = rate >= LEAST_RATE / coarse && rate <= ((FINEST_DECAY / 2) * LARGEST_MULTIPLE) / farthest(box);
  require(possible, "noise at this rate cannot be drawn exactly over this box; change `epsilon`, or the unit of distance");
  return Math.min(coarse, pow2(frexp(FINEST_DECAY / rate)[1] - 1));
}

/** Noise of the lattice that decays at most at `rate` per unit of distance, on multiples of `step`. */
export class LatticeNoise {
  /** @param {number} rate @param {number} step @param {number} p @param {number} axes */
  constructor(rate, step, p, axes) {
    require(axes <= MOST_AXES, `noise is supported for 1 to ${MOST_AXES} axes`);
    const [mantissa, exponent] = frexp(rate);
    /** a: the largest fraction with 30 binary digits that is at most rate·step. */
    this.a = Math.floor(mantissa * 2 ** RATE_BITS) * pow2(exponent - RATE_BITS) * step;
    must(this.a >= LEAST_RATE && this.a <= LARGEST_RATE, "rate", "from 2^-44 to 2^4 per step of the lattice");
    this.p = p;
    this.axes = axes;
    this.hasCoin = p !== 1 && axes > 1;
    this.rate = fraction(this.a);
    this.proposal = this.hasCoin ? proposalRate(this.rate, p, axes) : this.rate;
    /** b, exactly: it has 30 binary digits. */
    this.b = Number(this.proposal.n) / Number(this.proposal.d);
    this.inverse = 1 / this.b;
    this.his = new Uint32Array(axes + 1);
    this.los = new Uint32Array(axes + 1);
    this.sizes = new Float64Array(axes);
  }

  /** Return one vector; big integers where numbers could not hold it. @param {WordSource} source @returns {(number | bigint)[]} */
  draw(source) {
    for (;;) {
      const words = this.axes + (this.hasCoin ? 1 : 0);
      for (let i = 0; i < words; i++) {
        source.next();
        this.his[i] = source.hi;
        this.los[i] = source.lo;
      }
      const kept = this.#quick();
      if (kept === null) {
        const vector = this.#settle(source);
        if (vector) return vector;
      } else if (kept) return Array.from(this.sizes, (size, axis) => (this.los[axis] & 1 ? -size : size));
    }
  }

  /** Say whether the attempt is kept, with its sizes in `sizes`; null if floats leave it open. */
  #quick() {
    let negativeZero = false;
    for (let axis = 0; axis < this.axes; axis++) {
      enclose(this.his[axis], this.los[axis]);
      const size = Math.floor(low * this.inverse);
      if (size !== Math.floor(high * this.inverse)) return null;
      this.sizes[axis] = size;
      if (size === 0 && this.los[axis] & 1) negativeZero = true;
    }
    if (!this.hasCoin) return !negativeZero;
    enclose(this.his[this.axes], this.los[this.axes]);
    const size = this.a * norm(this.sizes, this.p, norms);
    // With r = 2^-53: squares, their sum and the root are off by at most 4r of the norm, its product with a by one more,
    // b‖v‖_1 ≤ a‖v‖_p by another and the difference by another; 16r covers that. For other norms see `pNorm`.
    const error = size * (this.p === 2 || this.p === Infinity ? 2 ** -49 : 2 ** -43);
    const gap = size - this.b * this.sizes.reduce((a, b) => a + b, 0);
    if (low > gap + error) return !negativeZero;
    return high >= gap - error ? null : false;
  }

  /** Return the vector of an attempt, null if it is not kept, from exact comparisons. @param {WordSource} source */
  #settle(source) {
    const word = (/** @type {number} */ i) => (BigInt(this.his[i]) << 32n) | BigInt(this.los[i]);
    const coin = this.hasCoin ? word(this.axes) : 0n;
    const words = Array.from(this.sizes, (_, axis) => word(axis));
    const sizes = words.map((one) => geometric(new Unit(one >> 1n, DIGITS), this.proposal, source));
    if (words.some((one, axis) => one & 1n && sizes[axis] === 0n)) return null;
    if (this.hasCoin && !this.#coin(new Unit(coin, 64), sizes, source)) return null;
    return sizes.map((size, axis) => (words[axis] & 1n ? -size : size));
  }

  /**
   * Return whether −ln(u) > a‖v‖_p − b‖v‖_1. The right side is 0 for v = 0 and otherwise positive and algebraic, so that
   * e to its power is transcendental: no comparison ends in a tie.
   * @param {Unit} unit
   * @param {bigint[]} sizes
   * @param {WordSource} source
   */
  #coin(unit, sizes, source) {
    if (sizes.every((size) => size === 0n)) return true;
    for (;;) {
      if (this.#exceedsGap(unit.digits + 1n, unit.known, sizes)) return true;
      if (unit.digits && !this.#exceedsGap(unit.digits, unit.known, sizes)) return false;
      unit.extend(source);
    }
  }

  /** Return whether −ln(digits/2^known) > a‖v‖_p − b‖v‖_1. @param {bigint} digits @param {number} known @param {bigint[]} sizes */
  #exceedsGap(digits, known, sizes) {
    const sum = sizes.reduce((a, b) => a + b, 0n);
    for (let bits = FIRST_BITS; ; bits *= 2) {
      const reals = new Reals(bits);
      const norm = reals.times(reals.ratio(this.rate.n, this.rate.d), exactNorm(reals, sizes, this.p));
      const flat = reals.ratio(this.proposal.n * sum, this.proposal.d);
      const logarithm = minusLn(reals, digits, known);
      if (logarithm[0] + flat[0] > norm[1]) return true;
      if (logarithm[1] + flat[1] < norm[0]) return false;
    }
  }
}

// ---------------------------------------------------------------- floats

let low = 0;
let high = 0;

/**
 * Put a lower and an upper bound of −ln(u) into `low` and `high`, for the u whose digits are the upper 63 of a word.
 *
 * With D those digits, u lies in [D, D + 1)/2^63. Let r = 2^-53 and E = −ln(D/2^63). Rounding D to a float moves E by at
 * most r, the missing digits move it by at most 1/D, and `minusLog` is off by at most 8r (E + 2). What follows (a
 * subtraction, a rounded reciprocal and a multiplication) costs another 3r E. The allowance is 16r (E + 2) + 2/D.
 * @param {number} hi
 * @param {number} lo
 */
function enclose(hi, lo) {
  const digits = hi * 2 ** 31 + (lo >>> 1);
  if (digits === 0) {
    low = 0;
    high = Infinity;
    return;
  }
  const unit = digits * 2 ** -DIGITS;
  const middle = minusLog(unit);
  const error = 2 ** (1 - DIGITS) / unit + (middle + 2) * 2 ** -49;
  low = middle - error;
  high = middle + error;
}

// ---------------------------------------------------------------- exact decisions

/** A real number in [0, 1) of which the first `known` binary digits are drawn. */
class Unit {
  /** @param {bigint} digits @param {number} known */
  constructor(digits, known) {
    this.digits = digits;
    this.known = known;
  }

  /** Draw 64 more digits. @param {WordSource} source */
  extend(source) {
    if (this.digits === 0n && this.known >= MOST_ZEROS) {
      throw new Error("The source of random words returns nothing but zeros.");
    }
    source.next();
    this.digits = (this.digits << 64n) | bigWord(source);
    this.known += 64;
  }
}

/** Return ⌊−ln(u)/rate⌋, which is n or more with probability e^{−rate·n}. @param {Unit} unit @param {Fraction} rate @param {WordSource} source */
function geometric(unit, rate, source) {
  for (;;) {
    if (unit.digits) {
      const least = exactFloor(unit.digits + 1n, unit.known, rate);
      if (least === exactFloor(unit.digits, unit.known, rate)) return least;
    }
    unit.extend(source);
  }
}

/** Return ⌊−ln(digits/2^known)/rate⌋; the quotient is 0 or irrational, so enough digits always decide. @param {bigint} digits @param {number} known @param {Fraction} rate */
function exactFloor(digits, known, rate) {
  if (digits === 1n << BigInt(known)) return 0n;
  for (let bits = FIRST_BITS; ; bits *= 2) {
    const reals = new Reals(bits);
    const [least, most] = minusLn(reals, digits, known).map((end) => floorDiv(end * rate.d, rate.n << reals.bits));
    if (least === most) return least;
  }
}

/** Return −ln(digits/2^known). @param {Reals} reals @param {bigint} digits @param {number} known @returns {Interval} */
function minusLn(reals, digits, known) {
  // Digits beyond the point, so that many of them are not cut off.
  const shift = BigInt(Math.max(0, bitLength(digits) - Number(reals.bits)));
  const whole = digits >> shift;
  const [least, most] = reals.ln([whole << reals.bits, (shift ? whole + 1n : whole) << reals.bits]);
  const scale = BigInt(known) - shift;
  const error = scale * (6n * reals.bits + 1n);
  return [scale * reals.log2 - most - error, scale * reals.log2 - least + error];
}

/** Return the largest fraction of 30 binary digits strictly below rate·N^{−(1 − 1/p)}. @param {Fraction} rate @param {number} p @param {number} axes @returns {Fraction} */
function proposalRate(rate, p, axes) {
  // The only rational powers, with p = 1: a floating-point p is a fraction, and N is 2, 3 or 4.
  if (p === Infinity) return strictlyBelow({ n: rate.n, d: rate.d * BigInt(axes) });
  if (p === 2 && axes === 4) return strictlyBelow({ n: rate.n, d: rate.d * 2n });
  const order = fraction(p);
  for (let bits = FIRST_BITS; ; bits *= 2) {
    const reals = new Reals(bits);
    const whole = BigInt(axes) << reals.bits;
    const exponent = reals.ratio(order.d - order.n, order.n); // 1/p − 1
    const power = reals.exp(reals.times(exponent, reals.ln([whole, whole])));
    const [least, most] = power.map((end) => strictlyBelow({ n: rate.n * end, d: rate.d << reals.bits }));
    if (least.n * most.d === most.n * least.d) return least;
  }
}

/** Return the largest fraction n/2^k with n below 2^30 that is less than `value`. @param {Fraction} value @returns {Fraction} */
function strictlyBelow({ n, d }) {
  let exponent = bitLength(n) - bitLength(d); // value ≥ 2^exponent, after the next line
  if (compare(n, d, exponent) < 0) exponent -= 1;
  // Below a power of two, fractions lie twice as close.
  const shift = exponent - RATE_BITS + 1 - (compare(n, d, exponent) === 0 ? 1 : 0);
  const [top, bottom] = shift >= 0 ? [n, d << BigInt(shift)] : [n << BigInt(-shift), d];
  const whole = (top + bottom - 1n) / bottom - 1n;
  return shift >= 0 ? { n: whole << BigInt(shift), d: 1n } : { n: whole, d: 1n << BigInt(-shift) };
}

/** Compare n/d with 2^exponent. @param {bigint} n @param {bigint} d @param {number} exponent */
function compare(n, d, exponent) {
  const [left, right] = exponent >= 0 ? [n, d << BigInt(exponent)] : [n << BigInt(-exponent), d];
  return left < right ? -1 : left > right ? 1 : 0;
}
