/** Elementary functions of floats that are the same on every engine: JavaScript does not say how accurate Math.cos is. */

import { bitLength, fraction, toNumber } from "./numbers.js";

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

// Numbers are multiples of 2^-192, far finer than the float to which the result is rounded.
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
