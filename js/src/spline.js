/**
 * Spline mechanisms: on each cell probabilities are polynomials, given by control rows of whole weights.
 *
 * Bernstein weights are those of coin flips: m flips of probability u per axis, u a ratio of lattice steps, land on a
 * control site with exactly its weight, and the output is drawn from that site's weights by an alias table. No
 * probability is computed on the way.
 */

import { must, require } from "./errors.js";
import { LARGEST_MULTIPLE, coarsestStep, farthest } from "./lattice.js";
import { isPowerOfTwo, pow2, rint } from "./numbers.js";
import { proveSpline } from "./proof.js";
import { Dense, Sparse, fineness } from "./tables.js";
import { coin } from "./words.js";

/**
 * @typedef {import("./header.js").Common} Common
 * @typedef {import("./header.js").Box} Box
 * @typedef {import("./words.js").WordSource} WordSource
 */

// The proof holds the weights of one cell: no more than this many, which is four axes of degree 3 with all outputs.
const MOST_IN_CELL = 2 ** 26;

// Up to this sum of dense rows, weights, their differences and six times those are exact as floats.
const LARGEST_FLOAT_SUM = 2 ** 50;

/** A spline over cells. */
export class Spline {
  /**
   * @param {number} step
   * @param {Float64Array[]} breakpoints
   * @param {number} degree
   * @param {Dense | Sparse} table
   */
  constructor(step, breakpoints, degree, table) {
    this.step = step;
    this.breakpoints = breakpoints;
    this.degree = degree;
    this.table = table;
    this.edges = breakpoints.map((points) => points.map((x) => rint(x / step)));
    this.cells = breakpoints.map((points) => points.length - 1);
    const counts = this.cells.map((cells) => degree * cells + 1);
    this.strides = counts.map((_, axis) => product(counts.slice(axis + 1)));
  }

  movedBy() {
    return this.step / 2; // the edges of the box are on the lattice
  }

  /** Say which rule is broken, if any. A proof between the lattice's points says little of others unless it is fine. @param {Box} box */
  fault(box) {
    const { step, breakpoints, table } = this;
    const fits = isPowerOfTwo(step) && step <= coarsestStep(box) && farthest(box) < LARGEST_MULTIPLE * step;
    if (!fits) return "its points are rounded to multiples of a step that is no power of two, too coarse or too fine for the box";
    const spans = breakpoints.every((points, axis) => {
      const rising = points.every((x, i) => rint(x / step) * step === x && (i === 0 || x > points[i - 1]));
      return rising && points.length > 1 && points[0] === box[0][axis] && points[points.length - 1] === box[1][axis];
    });
    return spans ? table.fault() : "its breakpoints are not rising multiples of the lattice's step that span the box";
  }

  /** @param {import("./claims.js").Claimed} claimed */
  prove(claimed) {
    return proveSpline(claimed, this);
  }

  /** Return what draws an output at a lattice point. @returns {(steps: number[], source: WordSource) => number} */
  sampler() {
    const { degree, strides, edges } = this;
    const draw = this.table.draws();
    return (steps, source) => {
      let site = 0;
      for (let axis = 0; axis < edges.length; axis++) {
        const points = edges[axis];
        const cell = cellOf(points, steps[axis]);
        const place = steps[axis] - points[cell];
        const side = points[cell + 1] - points[cell];
        let flips = degree * cell;
        for (let flip = 0; flip < degree; flip++) if (coin(source, place, side)) flips += 1;
        site += strides[axis] * flips;
      }
      return draw(site, source);
    };
  }

  /** Return probabilities at a lattice point, in floating point; nothing private rests on them. @param {number[]} steps */
  probabilities(steps) {
    /** @type {[number, number][]} */
    let mixture = [[0, 1]];
    this.edges.forEach((points, axis) => {
      const cell = cellOf(points, steps[axis]);
      const u = (steps[axis] - points[cell]) / (points[cell + 1] - points[cell]);
      const weights = bernstein(this.degree, u);
      mixture = mixture.flatMap(([site, share]) =>
        weights.map((w, a) => /** @type {[number, number]} */ ([
          site + this.strides[axis] * (this.degree * cell + a),
          share * w,
        ])),
      );
    });
    const { table } = this;
    const row = new Float64Array(table.outputs);
    for (const [site, share] of mixture) {
      const values = table.blank(row.length);
      table.put(site, values, 0, new Set());
      for (let k = 0; k < row.length; k++) row[k] += (share * (Number(table.floor) + Number(values[k]))) / table.total;
    }
    return row;
  }
}

/** @param {number[]} numbers */
const product = (numbers) => numbers.reduce((a, b) => a * b, 1);

/** Return the cell that holds a lattice point; a shared border belongs to the upper cell. @param {Float64Array} edges @param {number} x */
function cellOf(edges, x) {
  let low = 0;
  let high = edges.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (edges[middle] <= x) low = middle;
    else high = middle;
  }
  return low;
}

/** Return the Bernstein weights of one axis. @param {number} m @param {number} u */
function bernstein(m, u) {
  const binomials = [[], [1, 1], [1, 2, 1], [1, 3, 3, 1]][m];
  return binomials.map((count, a) => count * u ** a * (1 - u) ** (m - a));
}

/**
 * Return the spline of a file's fields, and what a file would say of it.
 * @param {Common} common
 */
export function readSpline({ box, count, settings, arrays }) {
  const breakpoints = box[0].map((_, axis) => readBreakpoints(arrays, axis));
  const degree = [1n, 2n, 3n].indexOf(/** @type {bigint} */ (settings.get("degree"))) + 1;
  must(degree, "degree", "1, 2 or 3");
  const sites = product(breakpoints.map((points) => degree * (points.length - 1) + 1));
  const isSparse = !arrays.has("table");
  const inCell = (degree + 1) ** breakpoints.length * count;
  require(!isSparse || inCell <= MOST_IN_CELL, "sparse tables with so many axes and outputs are not supported here");
  const table = (isSparse ? readSparse : readDense)({ settings, arrays, count }, sites);
  return described(new Spline(Number(settings.get("step")), breakpoints, degree, table), box, true);
}

/**
 * @param {Spline} spline
 * @param {Box} box
 * @param {boolean} isChecked whether broken rules are the file's fault; if not, the proof finds them
 * @returns {import("./header.js").Found}
 */
export function described(spline, box, isChecked) {
  const { step, breakpoints, cells, table } = spline;
  const fault = isChecked && spline.fault(box);
  require(!fault, `the file is damaged: ${fault}`);
  const degree = BigInt(spline.degree);
  const grid = new Map(Object.entries({ cells: cells.map(BigInt), degree }));
  const settings = new Map(Object.entries({ degree, step, ...(table instanceof Sparse && { floor: BigInt(table.floor) }) }));
  const kinds = { ...table.kinds, ...Object.fromEntries(breakpoints.map((_, axis) => [`breakpoints_${axis}`, "<f8"])) };
  return { body: spline, settings, kinds, grid, box, breakpoints };
}

/** @param {import("./header.js").Arrays} arrays @param {string} name @param {number} axes */
function needed(arrays, name, axes) {
  const array = arrays.get(name);
  must(array?.shape.length === axes, name, `an array of the file with ${axes} axes`);
  return array;
}

/** @param {import("./header.js").Arrays} arrays @param {number} axis */
export const readBreakpoints = (arrays, axis) => needed(arrays, `breakpoints_${axis}`, 1).floats;

/** @typedef {Pick<Common, "settings" | "arrays" | "count">} Given */

/** @param {Given} given @param {number} sites */
function readDense({ arrays, count }, sites) {
  const array = needed(arrays, "table", 2);
  must(array.shape[0] === sites && array.shape[1] === count, "table", "one row for each site and one column for each output");
  const total = count * pow2(fineness(count));
  const weights = total <= LARGEST_FLOAT_SUM ? array.weights(total) : array.numbers;
  must(weights, "table", `made of weights of at least 1 that sum to ${total} in every row`);
  return new Dense(count, weights);
}

/** @param {Given} given @param {number} sites */
function readSparse({ settings, arrays, count }, sites) {
  const [counts, columns, extras] = ["counts", "columns", "extras"].map((name) => needed(arrays, name, 1));
  const floor = settings.get("floor");
  must(typeof floor === "bigint", "floor", "a whole number");
  const ends = new Float64Array(counts.shape[0] + 1);
  counts.floats.forEach((n, site) => (ends[site + 1] = ends[site] + n));
  const weights = extras.weights(Number.MAX_SAFE_INTEGER);
  const whole = counts.shape[0] === sites && ends[sites] === columns.shape[0] && columns.shape[0] === extras.shape[0];
  require(whole && weights, "`counts` must add up to the numbers of columns and of extras, which are positive");
  return new Sparse(count, Number(floor), ends, Uint16Array.from(columns.floats), weights);
}
