/**
 * Real numbers as intervals of fixed-point big integers, for questions that floats leave open, and elementary functions
 * of floats that are the same on every engine: JavaScript does not say how accurate Math.exp or Math.cos is.
 */

import { bitLength, fraction, toNumber } from "./numbers.js";

/**
 * An interval: both ends as multiples of 2^-bits.
 * @typedef {[bigint, bigint]} Interval
 */

/** Arithmetic with so many binary digits after the point. */
export class Reals {
  /** @param {number} bits */
  constructor(bits) {
    this.bits = BigInt(bits);
    this.one = 1n << this.bits;
    this.log2 = 2n * this.#atanh(this.one / 3n);
  }

  /**
   * Return Σ s^(2j+1)/(2j+1) for 0 ≤ s ≤ 1/3. A power is cut off by less than 9/8 units, its quotient by one more, and
   * fewer than `bits` terms are not zero, so the sum is less than 3·bits units too small.
   * @param {bigint} s
   */
  #atanh(s) {
    const square = (s * s) >> this.bits;
    let sum = 0n;
    for (let power = s, odd = 1n; power > 0n; power = (power * square) >> this.bits, odd += 2n) sum += power / odd;
    return sum;
  }

  /** Return a fraction. @param {bigint} n @param {bigint} d positive @returns {Interval} */
  ratio(n, d) {
    const low = floorDiv(n << this.bits, d);
    return [low, low + 1n];
  }

  /** @param {Interval} a @param {Interval} b @returns {Interval} */
  times([a, b], [c, d]) {
    const products = [a * c, a * d, b * c, b * d];
    const low = products.reduce((x, y) => (x < y ? x : y));
    const high = products.reduce((x, y) => (x > y ? x : y));
    return [low >> this.bits, (high >> this.bits) + 1n];
  }

  /** Return the root of a whole number. @param {bigint} n @returns {Interval} */
  root(n) {
    const low = integerRoot(n << (2n * this.bits));
    return [low, low + 1n];
  }

  /** Return the logarithm of positive numbers. @param {Interval} x @returns {Interval} */
  ln([low, high]) {
    return [this.#ln(low)[0], this.#ln(high)[1]];
  }

  /**
   * With x = m 2^e and 1 ≤ m < 2: ln x = e ln 2 + 2 atanh((m − 1)/(m + 1)). ln 2 is off by less than 6·bits + 1 units,
   * m by one (which moves the logarithm by one), the quotient by two, the series by 6·bits.
   * @param {bigint} x
   * @returns {Interval}
   */
  #ln(x) {
    const exponent = BigInt(bitLength(x) - 1);
    const mantissa = (x << this.bits) >> exponent;
    const s = ((mantissa - this.one) << this.bits) / (mantissa + this.one);
    const power = exponent - this.bits;
    const middle = power * this.log2 + 2n * this.#atanh(s);
    const error = (6n * this.bits + 1n) * (power < 0n ? -power : power) + 6n * this.bits + 8n;
    return [middle - error, middle + error];
  }

  /** Return e to a power. @param {Interval} x @returns {Interval} */
  exp([low, high]) {
    return [this.#exp(low)[0], this.#exp(high)[1]];
  }

  /**
   * With x = k ln 2 + r and 0 ≤ r < ln 2: e^x = 2^k Σ r^n/n!. The term n is cut off by less than 2 units, there are fewer
   * than `bits` terms, and an error of r counts at most twice.
   * @param {bigint} x
   * @returns {Interval}
   */
  #exp(x) {
    const k = floorDiv(x, this.log2);
    const r = x - k * this.log2;
    let sum = 0n;
    for (let term = this.one, n = 1n; term > 0n; n += 1n) {
      sum += term;
      term = ((term * r) >> this.bits) / n;
    }
    const error = 2n * this.bits + 2n * (k < 0n ? -k : k) * (6n * this.bits + 1n) + 4n;
    const least = sum > error ? sum - error : 0n;
    return k >= 0n ? [least << k, (sum + error) << k] : [least >> -k, ((sum + error) >> -k) + 1n];
  }
}

/** @param {bigint} n @param {bigint} d positive */
export const floorDiv = (n, d) => (n >= 0n ? n / d : -((d - 1n - n) / d));

/** Return ⌊√n⌋. @param {bigint} n */
export function integerRoot(n) {
  if (n === 0n) return 0n;
  let root = 1n << BigInt((bitLength(n) + 1) >> 1);
  for (;;) {
    const next = (root + n / root) >> 1n;
    if (next >= root) return root;
    root = next;
  }
}

// ---------------------------------------------------------------- functions of floats, rounded to the nearest float

const BITS = 192n;
const ONE = 1n << BITS;

/** @param {number} x */
const toFixed = (x) => {
  const { n, d } = fraction(x);
  return floorDiv(n << BITS, d);
};

/** @param {bigint} x */
const toFloat = (x) => (x < 0n ? -toNumber({ n: -x, d: ONE }) : toNumber({ n: x, d: ONE }));

/** Return Σ (−1)^j x^(2j+first)/(2j+first)!. @param {bigint} x @param {bigint} first */
function alternating(x, first) {
  const square = (x * x) >> BITS;
  let sum = 0n;
  for (let term = first === 0n ? ONE : x, n = first; term !== 0n; n += 2n) {
    sum += term;
    term = -((term * square) >> BITS) / ((n + 1n) * (n + 2n));
  }
  return sum;
}

/** @param {number} x at most 2 in size */
export const cos = (x) => toFloat(alternating(toFixed(x), 0n));

/** @param {number} x at most 2 in size */
export const sin = (x) => toFloat(alternating(toFixed(x), 1n));

/** @param {number} x at most 2 in size */
export const tan = (x) => {
  const angle = toFixed(x);
  return toFloat((alternating(angle, 1n) << BITS) / alternating(angle, 0n));
};

/** @param {number} x not negative */
export function atan(x) {
  let y = toFixed(x);
  let halvings = 0n;
  // atan y = 2 atan(y / (1 + √(1 + y²)))
  for (; y > ONE >> 3n; halvings += 1n) y = (y << BITS) / (ONE + integerRoot((ONE << BITS) + y * y));
  const square = (y * y) >> BITS;
  let sum = 0n;
  for (let power = y, odd = 1n; power !== 0n; odd += 2n) {
    sum += power / odd;
    power = -((power * square) >> BITS);
  }
  return toFloat(sum << halvings);
}

/** Return x√x for a positive x. @param {number} x */
export const sesqui = (x) => {
  const fixed = toFixed(x);
  return toFloat(integerRoot((fixed * fixed * fixed) >> BITS));
};

/** Return a power of a whole number ≥ 1, as near as floats come. @param {number} base @param {number} exponent */
export function power(base, exponent) {
  const reals = new Reals(Number(BITS));
  const { n, d } = fraction(exponent);
  const whole = BigInt(base) << BITS;
  return toFloat(reals.exp(reals.times(reals.ratio(n, d), reals.ln([whole, whole])))[0]);
}
