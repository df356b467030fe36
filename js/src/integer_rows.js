/** Control rows in floating point, of files of format 1, to whole weights: the same weights that Python makes of them. */

import { require } from "./errors.js";
import { power } from "./norms.js";
import { pow2 } from "./numbers.js";
import { fineness } from "./tables.js";

/**
 * @param {Float64Array} values one row of K for each site
 * @param {number} outputs K
 * @param {Float64Array[]} breakpoints on the lattice
 * @param {number} degree
 * @param {number} epsilon
 * @param {number} p
 */
export function integerRows(values, outputs, breakpoints, degree, epsilon, p) {
  const bits = fineness(outputs);
  const total = outputs * pow2(bits);
  // Such files hold city networks of tens of outputs; weights beyond 2^53 would need another arithmetic.
  require(outputs <= 1024, "files of format 1 with more than 1,024 outputs must first be saved again with Python");
  const mix = roundingMix(breakpoints, degree, outputs, epsilon, p);
  const weights = new Float64Array(values.length);
  for (let start = 0; start < values.length; start += outputs) {
    const row = values.subarray(start, start + outputs);
    const sum = pairwiseSum(row);
    const scaled = row.map((x) => ((1 - mix) * (x / sum) + mix / outputs) * total);
    const whole = scaled.map(Math.floor);
    // Flooring leaves the sum short. The difference is shared out evenly, and its rest goes to the largest remainders.
    const missing = total - whole.reduce((a, b) => a + b, 0);
    const each = Math.floor(missing / outputs);
    const gap = whole.map((x, k) => x - scaled[k]);
    const order = Array.from(gap.keys()).sort((a, b) => gap[a] - gap[b] || a - b);
    order.forEach((k, rank) => (weights[start + k] = whole[k] + each + (rank < missing - each * outputs ? 1 : 0)));
  }
  return weights;
}

/**
 * Return the share of uniform that pays for rounding: an error of e in every weight moves a slope's control value by
 * 2me/h along each axis and the value itself by e.
 * @param {Float64Array[]} breakpoints
 * @param {number} degree
 * @param {number} outputs
 * @param {number} epsilon
 * @param {number} p
 */
function roundingMix(breakpoints, degree, outputs, epsilon, p) {
  const bits = fineness(outputs);
  const error = 4 + 16 * (outputs * pow2(bits)) * 2 ** -52;
  const sides = breakpoints.flatMap((points) => Array.from(points.subarray(1), (x, i) => x - points[i]));
  const shortest = Math.min(...sides);
  const axes = p === 1 ? 1 : power(breakpoints.length, p === Infinity ? 1 : 1 / (p / (p - 1)));
  return (error * ((axes * 2 * degree) / (shortest * epsilon) + 1)) / pow2(bits);
}

/** Return the sum that numpy computes: eight running sums, in halves beyond 128 numbers. @param {Float64Array} row @returns {number} */
function pairwiseSum(row) {
  const count = row.length;
  if (count < 8) return row.reduce((a, b) => a + b, 0);
  if (count > 128) {
    const half = (count >> 1) - ((count >> 1) % 8);
    return pairwiseSum(row.subarray(0, half)) + pairwiseSum(row.subarray(half));
  }
  const sums = row.slice(0, 8);
  const whole = count - (count % 8);
  for (let i = 8; i < whole; i++) sums[i % 8] += row[i];
  const [a, b, c, d, e, f, g, h] = sums;
  return row.subarray(whole).reduce((sum, x) => sum + x, a + b + (c + d) + (e + f + (g + h)));
}
