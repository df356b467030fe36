/**
 * Spline mechanisms: on each cell probabilities are polynomials, given by control rows of whole weights.
 *
 * Bernstein weights are those of coin flips: m flips of probability u per axis, u a ratio of lattice steps, land on a
 * control site with exactly its weight, and the output is drawn from that site's weights by an alias table. No
 * probability is computed on the way.
 */

import { require } from "./errors.js";
import { fineness, integerRows } from "./integer_rows.js";
import { LARGEST_MULTIPLE, coarsestStep, farthest, latticeStep } from "./lattice.js";
import { isPowerOfTwo, pow2, rint } from "./numbers.js";
import { asFloat, asWhole, positive } from "./values.js";
import { coin, integerBelow, upperBits } from "./words.js";

/**
 * @typedef {import("./header.js").Common} Common
 * @typedef {import("./header.js").Settings} Settings
 * @typedef {import("./words.js").WordSource} WordSource
 */

// The extras of every row of a sparse table sum to 2^50; with all floors beside them the sum is at most 2^53.
const SUM_BITS = 50;
const LARGEST_SUM = 2 ** 53;
const MOST_SPARSE_OUTPUTS = 2 ** 16;

// The proof holds the weights of one cell: no more than this many, which is four axes of degree 3 with all outputs.
const MOST_IN_CELL = 2 ** 26;

// Up to this sum of dense rows, weights, their differences and six times those are exact as floats.
const LARGEST_FLOAT_SUM = 2 ** 50;

/**
 * Control rows: one weight for every site and output.
 * @typedef {object} Dense
 * @property {false} sparse
 * @property {number} outputs
 * @property {Float64Array | BigInt64Array} weights floats up to K = 1,024, where they are exact
 *
 * Control rows: `floor` for every output, and more for some of each site.
 * @typedef {object} Sparse
 * @property {true} sparse
 * @property {number} outputs
 * @property {number} floor
 * @property {Float64Array} ends where each site's entries begin, and, last, where all end
 * @property {Uint16Array} columns
 * @property {Float64Array} extras
 */

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
    this.counts = this.cells.map((cells) => degree * cells + 1);
    this.strides = this.counts.map((_, axis) => product(this.counts.slice(axis + 1)));
  }

  movedBy() {
    return this.step / 2; // the edges of the box are on the lattice
  }

  /** Return what draws an output at a lattice point. @returns {(steps: number[], source: WordSource) => number} */
  sampler() {
    const { degree, strides, edges } = this;
    const draw = this.table.sparse ? sparseDraws(this.table) : denseDraws(this.table);
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
    const row = new Float64Array(this.table.outputs);
    for (const [site, share] of mixture) addRow(row, this.table, site, share);
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

/** @param {Float64Array} row @param {Dense | Sparse} table @param {number} site @param {number} share */
function addRow(row, table, site, share) {
  if (table.sparse) {
    const total = table.outputs * table.floor + 2 ** SUM_BITS;
    for (let k = 0; k < row.length; k++) row[k] += (share * table.floor) / total;
    for (let i = table.ends[site]; i < table.ends[site + 1]; i++) row[table.columns[i]] += (share * table.extras[i]) / total;
  } else {
    const total = table.outputs * pow2(fineness(table.outputs));
    for (let k = 0; k < row.length; k++) row[k] += (share * Number(table.weights[site * row.length + k])) / total;
  }
}

// ---------------------------------------------------------------- draws

/**
 * Column j of a row's alias table holds 2^b units: the first `keep` belong to output j, the others to its alias. Columns
 * are filled from the ends of two piles, those short of units and those with units to spare, as in Python.
 * @param {Float64Array | BigInt64Array} left weights of one row, which are used up
 * @param {number | bigint} height 2^b, of the weights' type
 * @param {(column: number, keep: number, alias: number) => void} put
 */
function aliasRow(left, height, put) {
  /** @type {number[]} */
  const short = [];
  /** @type {number[]} */
  const spare = [];
  for (let k = 0; k < left.length; k++) (left[k] < height ? short : spare).push(k);
  for (let k = 0; k < left.length; k++) put(k, Number(height), k);
  while (short.length && spare.length) {
    const low = /** @type {number} */ (short.pop());
    const high = spare[spare.length - 1];
    put(low, Number(left[low]), high);
    // @ts-ignore - floats with floats or big integers with big integers
    left[high] -= height - left[low];
    if (left[high] < height) short.push(/** @type {number} */ (spare.pop()));
  }
}

/** @param {Dense} table @returns {(site: number, source: WordSource) => number} */
function denseDraws({ outputs, weights }) {
  const bits = fineness(outputs);
  const keep = new Float64Array(weights.length);
  const alias = new Uint32Array(weights.length);
  const height = weights instanceof BigInt64Array ? 1n << BigInt(bits) : pow2(bits);
  for (let start = 0; start < weights.length; start += outputs) {
    aliasRow(weights.slice(start, start + outputs), height, (column, units, other) => {
      keep[start + column] = units;
      alias[start + column] = other;
    });
  }
  return (site, source) => {
    const column = integerBelow(source, outputs);
    source.next();
    const at = site * outputs + column;
    return upperBits(source, bits) < keep[at] ? column : alias[at];
  };
}

/**
 * A draw is a unit below K·floor + 2^50. The first K·floor units belong to the outputs in turn. The others belong to the
 * alias table of the row's extras, padded to a power of two of columns: upper bits are the column, lower ones the height.
 * @param {Sparse} table
 * @returns {(site: number, source: WordSource) => number}
 */
function sparseDraws({ outputs, floor, ends, columns, extras }) {
  const sites = ends.length - 1;
  const columnBits = Uint8Array.from({ length: sites }, (_, site) => 32 - Math.clz32(ends[site + 1] - ends[site] - 1));
  const starts = new Float64Array(sites + 1);
  for (let site = 0; site < sites; site++) starts[site + 1] = starts[site] + (1 << columnBits[site]);
  const keep = new Float64Array(starts[sites]);
  const own = new Uint16Array(starts[sites]);
  const other = new Uint16Array(starts[sites]);
  for (let site = 0; site < sites; site++) {
    const [first, last] = [ends[site], ends[site + 1]];
    const left = new Float64Array(1 << columnBits[site]);
    left.set(extras.subarray(first, last));
    aliasRow(left, pow2(SUM_BITS - columnBits[site]), (column, units, alias) => {
      const at = starts[site] + column;
      keep[at] = units;
      // Padding keeps nothing, so its own output does not matter; it is the row's first.
      own[at] = columns[first + column < last ? first + column : first];
      other[at] = columns[first + alias < last ? first + alias : first];
    });
  }
  const below = outputs * floor;
  return (site, source) => {
    const unit = integerBelow(source, below + 2 ** SUM_BITS);
    if (unit < below) return Math.floor(unit / floor);
    const height = pow2(SUM_BITS - columnBits[site]);
    const column = Math.floor((unit - below) / height);
    const at = starts[site] + column;
    return unit - below - column * height < keep[at] ? own[at] : other[at];
  };
}

// ---------------------------------------------------------------- files

/**
 * Return the spline of a file's fields, and what a file would say of it.
 * @param {Common} common
 * @param {Settings} settings
 */
export function readSpline(common, settings) {
  const breakpoints = common.box[0].map((_, axis) => readBreakpoints(settings, axis));
  const spans = breakpoints.every((points, axis) => {
    return points[0] === common.box[0][axis] && points[points.length - 1] === common.box[1][axis];
  });
  require(spans, "`breakpoints` must span the box");
  const degree = asWhole("degree", settings.number("degree"));
  require(degree >= 1n && degree <= 3n, "`degree` must be 1, 2 or 3");
  const m = Number(degree);
  const sites = product(breakpoints.map((points) => m * (points.length - 1) + 1));
  const oldTable = settings.arrays.get("table")?.kind === "<f8" ? settings.array("table") : null;
  if (oldTable) return oldSpline(common, breakpoints, m, sites, oldTable);
  const step = checkedStep(positive("step", settings.number("step")), common.box, breakpoints);
  const isSparse = !settings.has("table");
  const inCell = (m + 1) ** breakpoints.length * common.count;
  require(!isSparse || inCell <= MOST_IN_CELL, "sparse tables with so many axes and outputs are not supported here");
  const table = isSparse ? readSparse(settings, common.count, sites) : readDense(settings, common.count, sites);
  /** @type {[string, import("./json.js").Json][]} */
  const fields = [["degree", degree], ["step", step]];
  if (table.sparse) fields.push(["floor", BigInt(table.floor)]);
  /** @type {Record<string, string>} */
  const kinds = isSparse ? { counts: "<u2", columns: "<u2", extras: "<i8" } : { table: "<i8" };
  return described(new Spline(step, breakpoints, m, table), fields, kinds, common.box);
}

/**
 * @param {Spline} spline
 * @param {[string, import("./json.js").Json][]} fields
 * @param {Record<string, string>} kinds
 * @param {import("./header.js").Box} box
 */
function described(spline, fields, kinds, box) {
  const grid = new Map(
    /** @type {[string, import("./json.js").Json][]} */ ([
      ["cells", spline.cells.map(BigInt)],
      ["degree", BigInt(spline.degree)],
    ]),
  );
  spline.breakpoints.forEach((_, axis) => (kinds[`breakpoints_${axis}`] = "<f8"));
  return { body: spline, settings: new Map(fields), kinds, grid, box, breakpoints: spline.breakpoints };
}

/** @param {Settings} settings @param {number} axis */
function readBreakpoints(settings, axis) {
  const name = `breakpoints_${axis}`;
  const array = settings.array(name);
  const points = array.floats();
  const rising = points.every((x, i) => Number.isFinite(x) && (i === 0 || x > points[i - 1]));
  require(array.shape.length === 1 && points.length >= 2 && rising, `\`${name}\` must be at least two strictly increasing numbers`);
  return points;
}

/** @param {number} step @param {import("./header.js").Box} box @param {Float64Array[]} breakpoints */
function checkedStep(step, box, breakpoints) {
  const fits = isPowerOfTwo(step) && farthest(box) < LARGEST_MULTIPLE * step;
  require(fits, "`step` must be a power of two that is not too small for the box");
  require(step <= coarsestStep(box), "`step` must be finer for this box");
  const whole = breakpoints.every((points) => points.every((x) => rint(x / step) * step === x));
  require(whole, "`breakpoints` must be multiples of the lattice's step");
  return step;
}

/** @param {Settings} settings @param {number} outputs @param {number} sites @returns {Dense} */
function readDense(settings, outputs, sites) {
  const array = settings.array("table");
  const [rows, columns] = array.shape;
  const fits = array.shape.length === 2 && rows === sites && columns === outputs && array.kind === "<i8";
  require(fits, "`table` must have whole weights, one row for each site and one column for each output");
  const total = outputs * pow2(fineness(outputs));
  const weights = total <= LARGEST_FLOAT_SUM ? array.smallIntegers(1, total) : array.integers();
  const table = weights && { sparse: /** @type {const} */ (false), outputs, weights };
  require(table && !denseFault(table), `\`table\` must have weights of at least 1 that sum to ${total} in every row`);
  return table;
}

/** Say which rule of a dense table is broken, if any. @param {Dense} table */
export function denseFault({ outputs, weights }) {
  const bits = fineness(outputs);
  const big = weights instanceof BigInt64Array;
  const total = big ? BigInt(outputs) << BigInt(bits) : outputs * pow2(bits);
  for (let start = 0; start < weights.length; start += outputs) {
    let sum = big ? 0n : 0;
    for (let k = start; k < start + outputs; k++) {
      if (!(weights[k] >= 1 && weights[k] <= total)) return "a weight is below 1, or above the sum";
      // @ts-ignore - floats with floats or big integers with big integers
      sum += weights[k];
    }
    if (sum !== total) return "the rows have different sums";
  }
  return null;
}

/** @param {Settings} settings @param {number} outputs @param {number} sites @returns {Sparse} */
function readSparse(settings, outputs, sites) {
  const [counts, columns, extras] = ["counts", "columns", "extras"].map((name) => settings.array(name));
  const kinds = counts.kind === "<u2" && columns.kind === "<u2" && extras.kind === "<i8";
  const flat = [counts, columns, extras].every((array) => array.shape.length === 1);
  require(kinds && flat, "`counts` and `columns` must be lists of 16-bit numbers, and `extras` 64-bit integers");
  require(outputs <= MOST_SPARSE_OUTPUTS, `a sparse table has at most ${MOST_SPARSE_OUTPUTS} outputs`);
  const floor = settings.number("floor");
  const room = BigInt(LARGEST_SUM) - (1n << BigInt(SUM_BITS));
  const fits = typeof floor === "bigint" && floor >= 1n && BigInt(outputs) * floor <= room;
  require(fits, "`floor` must be a whole number, at least 1, with which rows sum to at most 2^53");
  require(counts.size === sites, "`counts` must be as many as there are sites");
  const ends = new Float64Array(sites + 1);
  counts.floats().forEach((count, site) => (ends[site + 1] = ends[site] + count));
  const whole = ends[sites] === columns.size && columns.size === extras.size;
  require(whole, "`counts` must add up to the number of columns and extras");
  const weights = extras.smallIntegers(1, 2 ** SUM_BITS);
  const table = weights && {
    sparse: /** @type {const} */ (true),
    outputs,
    floor: Number(floor),
    ends,
    columns: Uint16Array.from(columns.floats()),
    extras: weights,
  };
  const fault = table ? sparseFault(table) : `an extra is not between 1 and 2^${SUM_BITS}`;
  require(table && !fault, `the table is damaged: ${fault}`);
  return table;
}

/** Say which rule of a sparse table is broken, if any. @param {Sparse} table */
export function sparseFault({ outputs, floor, ends, columns, extras }) {
  if (!(floor >= 1 && outputs * floor + 2 ** SUM_BITS <= LARGEST_SUM)) return "the floor is out of range";
  for (let site = 0; site + 1 < ends.length; site++) {
    if (ends[site] >= ends[site + 1]) return "every site needs an output with an extra";
    let sum = 0;
    for (let i = ends[site]; i < ends[site + 1]; i++) {
      if (columns[i] >= outputs) return "a column is not the number of an output";
      if (i > ends[site] && columns[i] <= columns[i - 1]) return "the columns of a site do not increase";
      if (!(extras[i] >= 1 && extras[i] <= 2 ** SUM_BITS)) return `an extra is not between 1 and 2^${SUM_BITS}`;
      sum += extras[i];
      if (sum > 2 ** SUM_BITS) break; // before it is rounded
    }
    if (sum !== 2 ** SUM_BITS) return `the extras of a site do not sum to 2^${SUM_BITS}`;
  }
  return null;
}

/**
 * Return the spline of a table in floating point, from before there were integers.
 * @param {Common} common
 * @param {Float64Array[]} given
 * @param {number} degree
 * @param {number} sites
 * @param {import("./archive.js").FileArray} array
 */
function oldSpline(common, given, degree, sites, array) {
  const [rows, columns] = array.shape;
  const values = array.floats();
  const fits = array.shape.length === 2 && rows === sites && columns === common.count;
  require(fits && values.every((x) => x > 0 && x < Infinity), "`table` must be positive and finite, one row for each site");
  const step = latticeStep(common.box);
  const breakpoints = given.map((points) => {
    const last = points.length - 1;
    const moved = points.map((x, i) => step * (i === 0 ? Math.floor : i === last ? Math.ceil : rint)(x / step));
    require(moved.every((x, i) => i === 0 || x > moved[i - 1]), "`breakpoints` must be farther apart");
    return moved;
  });
  const box = [0, 1].map((side) => breakpoints.map((points) => points[side ? points.length - 1 : 0]));
  const weights = integerRows(values, columns, breakpoints, degree, asFloat(common.epsilon), common.p);
  const table = { sparse: /** @type {const} */ (false), outputs: columns, weights };
  const spline = new Spline(step, breakpoints, degree, table);
  return described(spline, [["degree", BigInt(degree)], ["step", step]], { table: "<i8" }, /** @type {import("./header.js").Box} */ (box));
}
