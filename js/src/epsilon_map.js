/** A map of ε: one value for each cell of a grid over the box. The promise is then made along paths. */

import { require } from "./errors.js";
import { decimalPlaces, fixed, scientific } from "./numbers.js";

/**
 * @typedef {object} EpsilonMap
 * @property {Float64Array[]} breakpoints borders of its cells along each axis
 * @property {Float64Array} values of the cells, last axis fastest
 * @property {number[]} shape
 * @property {number} least
 */

const VALUES = "epsilon_values";
const BORDERS = "epsilon_breakpoints_";
const LEAST = 1e-100;

/** Whether an array of a file is part of a map. @param {string} name */
export const isMapArray = (name) => name === VALUES || /^epsilon_breakpoints_[0-7]$/.test(name);

/**
 * Return the map of a file, null if it has none; it must be one of exactly this box, with ε as its largest value.
 * @param {Map<string, import("./archive.js").FileArray>} arrays
 * @param {import("./header.js").Box} box
 * @param {number} epsilon
 * @returns {EpsilonMap | null}
 */
export function readMap(arrays, box, epsilon) {
  const given = [...arrays.keys()].filter(isMapArray);
  if (!given.length) return null;
  const wanted = [VALUES, ...box[0].map((_, axis) => BORDERS + axis)];
  const found = wanted.map((name) => arrays.get(name));
  const whole = given.length === wanted.length && found.every((array) => array?.kind === "<f8");
  require(whole, "a map of epsilon must be its values and its borders along each axis, in floats");
  const [cells, ...borders] = /** @type {import("./archive.js").FileArray[]} */ (found);
  const breakpoints = borders.map((array) => array.floats());
  const values = cells.floats();
  const { shape } = cells;
  const fits = breakpoints.every((points, axis) => {
    const spans = points[0] === box[0][axis] && points[points.length - 1] === box[1][axis];
    const rising = points.every((x, i) => i === 0 || x > points[i - 1]);
    return borders[axis].shape.length === 1 && points.length >= 2 && spans && rising && shape[axis] === points.length - 1;
  });
  require(fits && shape.length === breakpoints.length, "`epsilon_breakpoints` must rise and span the box, `epsilon_values` have one value for each cell");
  const least = values.reduce((a, b) => Math.min(a, b));
  const most = values.reduce((a, b) => Math.max(a, b));
  require(least >= LEAST && most === epsilon, "`epsilon_values` must be positive, with `epsilon` as the largest");
  require(!hasEqualNeighbours(values, shape), "the map of epsilon has neighbouring rows or columns that are equal");
  return { breakpoints, values, shape, least };
}

/** @param {Float64Array} values @param {number[]} shape */
function hasEqualNeighbours(values, shape) {
  let stride = values.length;
  return shape.some((count) => {
    const block = stride;
    stride /= count;
    const step = stride;
    const differs = new Uint8Array(count);
    for (let i = 0; i < values.length; i++) {
      const at = Math.floor((i % block) / step);
      if (at > 0 && values[i] !== values[i - step]) differs[at] = 1;
    }
    return differs.some((other, at) => at > 0 && !other);
  });
}

/** Whether borders of a map are among those of a spline's cells. @param {EpsilonMap} map @param {Float64Array[]} breakpoints */
export const isAlong = (map, breakpoints) =>
  map.breakpoints.every((points, axis) => points.every((x) => breakpoints[axis].includes(x)));

/**
 * Return what gives the cell of the map that holds a cell of a finer grid.
 * @param {EpsilonMap} map
 * @param {Float64Array[]} breakpoints
 * @returns {(cell: number[]) => number}
 */
export function mapCells({ breakpoints: own, shape }, breakpoints) {
  const places = breakpoints.map((points, axis) => {
    let place = -1;
    return Array.from(points.subarray(0, -1), (x) => (x === own[axis][place + 1] ? ++place : place));
  });
  return (cell) => cell.reduce((at, n, axis) => at * shape[axis] + places[axis][n], 0);
}

/** Return a distance in words, rounded down: in metres below a kilometre, a plain number where there is no unit. @param {number} value @param {string} unit */
export function lengthDown(value, unit) {
  const [digits, exponent] = decimalPlaces(value, 3);
  if (!unit) return plainDigits(digits, exponent);
  return exponent < 0 ? `${plainDigits(digits, exponent + 3)} m` : `${plainDigits(digits, exponent)} km`;
}

/** @param {string} digits @param {number} exponent of the first */
const plainDigits = (digits, exponent) =>
  exponent < -6 || exponent > 9 ? scientific(digits, exponent, 1) : fixed(digits, exponent);
