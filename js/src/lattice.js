/** The lattice to which points are rounded: multiples of one power of two, fine against the box. */

import { require } from "./errors.js";
import { frexp, pow2, rint } from "./numbers.js";

/** @typedef {import("./header.js").Box} Box */

// Multiples below this stay exact as floats, with digits to spare for differences and halves.
export const LARGEST_MULTIPLE = 2 ** 51;

/** @param {Box} box */
const shortestSide = ([low, high]) => Math.min(...high.map((edge, axis) => edge - low[axis]));

/** Return the largest size of a coordinate. @param {Box} box */
export const farthest = (box) => Math.max(...box.flat().map(Math.abs));

/** Return the spacing of the lattice over a box: a power of two, at most 2^-20, and 2^-20 of the shortest side. @param {Box} box */
export function latticeStep(box) {
  const step = pow2(Math.min(-20, frexp(shortestSide(box))[1] - 21));
  require(step > 0 && farthest(box) < LARGEST_MULTIPLE * step, "`box` must lie within 2^51 lattice steps of the origin");
  return step;
}

/** Return the largest spacing that a lattice over a box may have; its sides may have lost a few steps. @param {Box} box */
export const coarsestStep = (box) => Math.min(2 ** -20, shortestSide(box) * (1 + 2 ** -18) * 2 ** -20);

/** Return a point of the box in lattice steps. @param {ArrayLike<number>} point @param {Box} box @param {number} step */
export function toSteps(point, [low, high], step) {
  return low.map((least, axis) => rint(Math.min(Math.max(point[axis], least), high[axis]) / step));
}

/** Whether a norm needs nothing of `norms.js`. @param {number} p its order */
export const isCommon = (p) => p === 1 || p === 2 || p === Infinity;

/**
 * Return ‖v‖_p of sizes ≥ 0.
 * @param {Float64Array} sizes
 * @param {number} p
 * @param {typeof import("./norms.js") | null} norms for orders other than 1, 2 and ∞
 */
export function norm(sizes, p, norms) {
  let largest = 0;
  let sum = 0;
  let squares = 0;
  for (let axis = 0; axis < sizes.length; axis++) {
    const size = sizes[axis];
    if (size > largest) largest = size;
    sum += size;
    squares += size * size;
  }
  if (p === 2) return Math.sqrt(squares);
  return p === 1 ? sum : norms && p < Infinity ? norms.pNorm(sizes, p) : largest;
}
