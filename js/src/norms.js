/**
 * Norms of any order p ≥ 1, with their logarithms and exponentials: as floats with a proved error, and as intervals of
 * fixed-point big integers for questions that floats leave open. The orders 1, 2 and ∞ do without this module.
 */

import { floorDiv, integerRoot } from "./functions.js";
import { bitLength, fraction, pow2, toNumber } from "./numbers.js";

/** @typedef {import("./numbers.js").Fraction} Fraction */

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

/** Return a power of a whole number ≥ 1, as near as floats come. @param {number} base @param {number} exponent */
export function power(base, exponent) {
  const reals = new Reals(192);
  const { n, d } = fraction(exponent);
  const whole = BigInt(base) << reals.bits;
  const least = reals.exp(reals.times(reals.ratio(n, d), reals.ln([whole, whole])))[0];
  return toNumber({ n: least, d: reals.one });
}

// ---------------------------------------------------------------- floats

const view = new DataView(new ArrayBuffer(8));
const CENTRE = Math.sqrt(0.5);
const LOG_CENTRE = -0.3465735902799726;
const LOG_2 = 0.6931471805599453;
const ATANH = Array.from({ length: 9 }, (_, k) => 1 / (2 * k + 1));
const EXP = [1];
for (let k = 1, factorial = 1; k < 13; k++) EXP.push(1 / (factorial *= k));

/**
 * Return −ln(x) of a positive float, off by at most 2^-50 (|ln x| + 2).
 *
 * x = m 2^k with ½ ≤ m < 1, and ln(m/c) = 2 atanh(s) = 2s (1 + s²/3 + s⁴/5 + …) with s = (m − c)/(m + c), |s| < 0.172.
 *
 * Errors, with r = 2^-53: m − c is exact (Sterbenz), m + c and the quotient are rounded, so s is off by 2r of itself. The
 * series is cut off after s^16/17, which leaves less than 8.2r; its other errors are below 2r. With two more roundings
 * 2s·series < 0.347 is off by less than 5r. Adding ln c, itself rounded, costs 1r. k ln 2 is off by 2r (|ln x| + 0.7) and
 * the last sum by r (|ln x| + 1). Altogether less than r (3|ln x| + 9); the bound is r (8|ln x| + 16).
 * @param {number} x
 */
export function minusLog(x) {
  view.setFloat64(0, x);
  const upper = view.getUint32(0);
  view.setUint32(0, (upper & 0x000fffff) | 0x3fe00000);
  const mantissa = view.getFloat64(0);
  const s = (mantissa - CENTRE) / (mantissa + CENTRE);
  const square = s * s;
  let series = square * ATANH[8];
  for (let k = 7; k > 0; k--) series = (series + ATANH[k]) * square;
  return (series + ATANH[0]) * s * -2 - LOG_CENTRE - ((upper >>> 20) - 1022) * LOG_2;
}

/**
 * Return e^y for −700 ≤ y ≤ 2, off by at most 2^-50 (|y| + 2) of itself.
 *
 * y = k ln 2 + z with |z| < 0.347. In units of r = 2^-53: k ln 2 is off by 2r (|y| + 0.4), the difference by r; the series
 * up to z^12 leaves less than 3r, and its own roundings come to less than 4r.
 * @param {number} y
 */
function exponential(y) {
  const exponent = Math.round(y * (1 / LOG_2));
  const z = y - exponent * LOG_2;
  let series = z * EXP[12];
  for (let k = 11; k > 0; k--) series = (series + EXP[k]) * z;
  return (series + EXP[0]) * pow2(exponent);
}

/**
 * Return ‖v‖_p of sizes ≥ 0, off by at most 2^-44 of itself.
 *
 * It is m (Σ t_ℓ)^{1/p} with m the largest size and t_ℓ = e^{−x_ℓ}, x_ℓ = p ln(m/|v_ℓ|). Together with the exponential's own
 * error, x_ℓ is off by at most 2^-47 p + 2^-47 x_ℓ. The first part changes the norm by a factor of at most e^{2^-47},
 * whatever p is; the second changes t_ℓ by at most 2^-47/e and the norm by a factor of at most 1 + N 2^-47/e. The last
 * logarithm and exponential are off by less than 2^-48 each. A size of 0 counts as 2^-64 m, a term below e^-700 as e^-700.
 * @param {Float64Array} sizes
 * @param {number} p
 */
export function pNorm(sizes, p) {
  const largest = Math.max(...sizes);
  if (largest === 0) return 0;
  let total = 0;
  for (const size of sizes) {
    const share = Math.max(size / largest, 2 ** -64);
    total += exponential(-p * Math.min(Math.max(minusLog(share), 0), 700 / p));
  }
  return largest * exponential(minusLog(total) / -p);
}

// ---------------------------------------------------------------- big integers

/**
 * Return ‖v‖_p of whole sizes, not all 0; for general p as m (Σ (|v_ℓ|/m)^p)^{1/p}.
 * @param {Reals} reals
 * @param {bigint[]} sizes
 * @param {number} p
 * @returns {Interval}
 */
export function exactNorm(reals, sizes, p) {
  const largest = sizes.reduce((a, b) => (a > b ? a : b));
  if (p === Infinity) return [largest << reals.bits, largest << reals.bits];
  if (p === 2) return reals.root(sizes.reduce((sum, size) => sum + size * size, 0n));
  const order = fraction(p);
  /** @type {Interval} */
  let total = [0n, 0n];
  for (const size of sizes) {
    if (size === 0n) continue;
    // A quotient that is cut off to 0 is below 2^-bits, and so is its power.
    const term = size === largest ? [reals.one, reals.one] : raised(reals, reals.ratio(size, largest), order);
    total = [total[0] + term[0], total[1] + term[1]];
  }
  const root = raised(reals, total, { n: order.d, d: order.n });
  return [largest * root[0], largest * root[1]];
}

/** Return x to a positive power. @param {Reals} reals @param {Interval} x @param {Fraction} power @returns {Interval} */
function raised(reals, [from, to], { n, d }) {
  const exponent = reals.ratio(n, d);
  const least = from > 0n ? reals.exp(reals.times(exponent, reals.ln([from, from])))[0] : 0n;
  return [least, reals.exp(reals.times(exponent, reals.ln([to, to])))[1]];
}
