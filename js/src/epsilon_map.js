/** A map of ε: one value for each cell of a grid over the box. The promise is then made along paths. */

import { must, require } from "./errors.js";
import { atLeast, decimalDigits, fixed, repr, scientific } from "./numbers.js";

/** @typedef {import("./claims.js").Claimed} Claimed */

const VALUES = "epsilon_values";
const BORDERS = "epsilon_breakpoints_";
const LEAST = 1e-100;

/**
 * Return the map of a file; it must be one of exactly this box, with ε as its largest value and borders between cells.
 * @param {import("./header.js").Arrays} arrays
 * @param {import("./header.js").Box} box
 * @param {number} epsilon
 * @param {Float64Array[]} cells borders of the mechanism's cells along each axis
 */
export function readMap(arrays, box, epsilon, cells) {
  /** @param {string} name */
  const found = (name) => {
    const array = arrays.get(name);
    require(array?.kind === "<f8", "a map of epsilon must be its values and its borders along each axis, in floats");
    return array;
  };
  const { floats: values, shape } = found(VALUES);
  const borders = box[0].map((_, axis) => found(BORDERS + axis));
  const breakpoints = borders.map((array) => array.floats);
  const fits = breakpoints.every((points, axis) => {
    const spans = points[0] === box[0][axis] && points[points.length - 1] === box[1][axis];
    const rising = points.every((x, i) => i === 0 || x > points[i - 1]);
    return borders[axis].shape.length === 1 && spans && rising && shape[axis] === points.length - 1;
  });
  must(fits && shape.length === breakpoints.length, BORDERS, `rising, and span the box; \`${VALUES}\` must be one for each cell`);
  // By sets: to look through all cells for each border would take hours for a file that unpacks to 64 MB.
  const known = cells.map((points) => new Set(points));
  must(breakpoints.every((points, axis) => points.every((x) => known[axis].has(x))), BORDERS, "among the breakpoints");
  const least = values.reduce((a, b) => Math.min(a, b));
  const most = values.reduce((a, b) => Math.max(a, b));
  must(least >= LEAST && most === epsilon, VALUES, "positive, with `epsilon` as the largest");
  require(!hasEqualNeighbours(values, shape), "the map of epsilon has neighbouring rows or columns that are equal");
  return new EpsilonMap(breakpoints, values, shape, least);
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

export class EpsilonMap {
  /** @param {Float64Array[]} breakpoints @param {Float64Array} values last axis fastest @param {number[]} shape @param {number} least */
  constructor(breakpoints, values, shape, least) {
    this.breakpoints = breakpoints;
    this.values = values;
    this.shape = shape;
    this.least = least;
  }

  /** What a file holds of it. @returns {Record<string, string>} */
  get kinds() {
    return Object.fromEntries([VALUES, ...this.shape.map((_, axis) => BORDERS + axis)].map((name) => [name, "<f8"]));
  }

  /** Return a copy for apps. */
  plain() {
    const lists = this.breakpoints.map((points) => Object.freeze(Array.from(points)));
    return Object.freeze({
      breakpoints: Object.freeze(lists),
      values: Object.freeze(Array.from(this.values)),
      shape: Object.freeze([...this.shape]),
    });
  }

  /** Return what gives the cell of the map that holds a cell of a finer grid. @param {Float64Array[]} finer @returns {(cell: number[]) => number} */
  cells(finer) {
    const places = finer.map((points, axis) => {
      let place = -1;
      return Array.from(points.subarray(0, -1), (x) => (x === this.breakpoints[axis][place + 1] ? ++place : place));
    });
    return (cell) => cell.reduce((at, n, axis) => at * this.shape[axis] + places[axis][n], 0);
  }

  /** State a proved claim along paths, where ε varies. @param {Claimed} claimed @returns {import("./claims.js").Paths | null} */
  paths(claimed) {
    if (this.values.length === 1) return null;
    const { least, shape } = this;
    const most = claimed.epsilon;
    const straight = claimed.straightEpsilon / most;
    const [near, far] = [most, least].map((epsilon) => 1 / (epsilon * straight));
    const unit = claimed.projection ? "km" : "";
    const lengths = unit && `lengths in km ${claimed.isGround ? "on the ground" : "on the map"}, `;
    const rounding = atLeast(claimed.isGround ? claimed.claimedRounding : claimed.rounding) + (unit && ` ${unit}`);
    const statement =
      `Private by a map of epsilon, from ${repr(least)} to ${repr(most)}: no report is more than exp(E + ${repr(most)} r) ` +
      "times likelier from one point than from another, as given, where E is the integral of epsilon along any path " +
      `inside the box that joins them (${lengths}r = ${rounding}). So any two places within ${lengthDown(near, unit)} of ` +
      "each other are told apart by a factor of at most e, rounding apart, and within " +
      `${lengthDown(far, unit)} if the straight line between them stays where epsilon is ${repr(least)}.`;
    return Object.freeze({ least, most, radiusLeast: near, radiusMost: far, cells: [...shape], statement });
  }
}

/** Return a distance in words, rounded down: in metres below a kilometre, a plain number where there is no unit. @param {number} value @param {string} unit */
function lengthDown(value, unit) {
  const [all, exponent] = decimalDigits(value);
  const digits = all.slice(0, 3).replace(/0+$/, "");
  if (!unit) return plainDigits(digits, exponent);
  return exponent < 0 ? `${plainDigits(digits, exponent + 3)} m` : `${plainDigits(digits, exponent)} km`;
}

/** @param {string} digits @param {number} exponent of the first */
const plainDigits = (digits, exponent) =>
  exponent < -6 || exponent > 9 ? scientific(digits, exponent, 1) : fixed(digits, exponent);
