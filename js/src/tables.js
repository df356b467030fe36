/** Tables of whole weights that splines draw from: one for every site and output, or a floor for all and more for some. */

import { require } from "./errors.js";
import { pow2 } from "./numbers.js";
import { integerBelow, upperBits } from "./words.js";

/**
 * @typedef {import("./words.js").WordSource} WordSource
 * @typedef {Float64Array | BigInt64Array} Weights floats where they are exact
 */

// The sum of a dense row is K·2^b; 2^-40 of uniform is far below what any loss can see.
const FINEST = 40;
const LARGEST_SUM_BITS = 58;
const MOST_OUTPUTS = 2 ** 20;

// The extras of every row of a sparse table sum to 2^50; with all floors beside them the sum is at most 2^53.
const SUM_BITS = 50;
const EXTRAS = 2 ** SUM_BITS;
const LARGEST_SUM = 2 ** 53;
const MOST_SPARSE_OUTPUTS = 2 ** 16;

/** Return b: dense weights of K outputs sum to K·2^b. @param {number} outputs */
export function fineness(outputs) {
  require(outputs >= 1 && outputs <= MOST_OUTPUTS, `there must be at most ${MOST_OUTPUTS} outputs`);
  return Math.min(FINEST, LARGEST_SUM_BITS - (32 - Math.clz32(outputs - 1)));
}

/**
 * Column j of a row's alias table holds 2^b units: the first `keep` belong to output j, the others to its alias. Columns
 * are filled from the ends of two piles, those short of units and those with units to spare, as in Python.
 * @param {any} left weights of one row, which are used up
 * @param {any} height 2^b, of the weights' type
 * @param {Float64Array} keep
 * @param {Uint32Array} alias
 * @param {number} start where the row begins in both
 */
function aliasRow(left, height, keep, alias, start) {
  /** @type {number[]} */
  const short = [];
  /** @type {number[]} */
  const spare = [];
  for (let k = 0; k < left.length; k++) {
    (left[k] < height ? short : spare).push(k);
    keep[start + k] = Number(height);
    alias[start + k] = k;
  }
  while (short.length && spare.length) {
    const low = /** @type {number} */ (short.pop());
    const high = spare[spare.length - 1];
    keep[start + low] = Number(left[low]);
    alias[start + low] = high;
    left[high] -= height - left[low];
    if (left[high] < height) short.push(/** @type {number} */ (spare.pop()));
  }
}

/** One weight for every site and output. */
export class Dense {
  /** @param {number} outputs @param {Weights} weights */
  constructor(outputs, weights) {
    this.outputs = outputs;
    this.weights = weights;
    this.bits = fineness(outputs);
    this.total = outputs * pow2(this.bits);
    /** Of the weights' type, here and below. @type {any} */
    this.floor = weights instanceof BigInt64Array ? 0n : 0;
    this.kinds = { table: "<i8" };
  }

  /** Return so many zeros. @param {number} count @returns {Weights} */
  blank(count) {
    return this.weights instanceof BigInt64Array ? new BigInt64Array(count) : new Float64Array(count);
  }

  /** Return the outputs that have a weight beside the floor at every site. */
  everywhere() {
    return new Set(Array(this.outputs).keys());
  }

  /**
   * Put what a site has beside the floor into `values`, and the outputs that have it into `present`.
   * @param {number} site
   * @param {any} values
   * @param {number} at
   * @param {Set<number>} _present
   */
  put(site, values, at, _present) {
    values.set(this.weights.subarray(site * this.outputs, (site + 1) * this.outputs), at);
  }

  /** Say which rule is broken, if any. */
  fault() {
    const { outputs, weights, total } = this;
    for (let start = 0; start < weights.length; start += outputs) {
      let sum = this.floor;
      for (let k = start; k < start + outputs; k++) {
        if (!(weights[k] >= 1 && weights[k] <= total)) return "a weight is below 1, or above the sum";
        sum += weights[k];
      }
      if (sum != total) return "the rows have different sums"; // exact between a big integer and a float too
    }
    return null;
  }

  /** @returns {(site: number, source: WordSource) => number} */
  draws() {
    const { outputs, weights, bits } = this;
    const keep = new Float64Array(weights.length);
    const alias = new Uint32Array(weights.length);
    const height = weights instanceof BigInt64Array ? 1n << BigInt(bits) : pow2(bits);
    for (let start = 0; start < weights.length; start += outputs) {
      aliasRow(weights.slice(start, start + outputs), height, keep, alias, start);
    }
    return (site, source) => {
      const column = integerBelow(source, outputs);
      source.next();
      const at = site * outputs + column;
      return upperBits(source, bits) < keep[at] ? column : alias[at];
    };
  }
}

/** `floor` for every output, and more for some of each site. */
export class Sparse {
  /**
   * @param {number} outputs
   * @param {number} floor
   * @param {Float64Array} ends where each site's entries begin, and, last, where all end
   * @param {Uint16Array} columns
   * @param {Float64Array} extras
   */
  constructor(outputs, floor, ends, columns, extras) {
    this.outputs = outputs;
    this.floor = floor;
    this.ends = ends;
    this.columns = columns;
    this.extras = extras;
    this.total = outputs * floor + EXTRAS;
    this.kinds = { counts: "<u2", columns: "<u2", extras: "<i8" };
  }

  /** See `Dense`. @param {number} count */
  blank(count) {
    return new Float64Array(count);
  }

  /** @returns {Set<number>} */
  everywhere() {
    return new Set();
  }

  /** @param {number} site @param {any} values @param {number} at @param {Set<number>} present */
  put(site, values, at, present) {
    for (let i = this.ends[site]; i < this.ends[site + 1]; i++) {
      values[at + this.columns[i]] = this.extras[i];
      present.add(this.columns[i]);
    }
  }

  /** Say which rule is broken, if any. */
  fault() {
    const { outputs, floor, ends, columns, extras } = this;
    if (!(floor >= 1 && outputs * floor <= LARGEST_SUM - EXTRAS)) return "the floor is out of range";
    if (outputs > MOST_SPARSE_OUTPUTS) return "there are too many outputs";
    for (let site = 0; site + 1 < ends.length; site++) {
      let sum = 0;
      for (let i = ends[site]; i < ends[site + 1]; i++) {
        if (columns[i] >= outputs || (i > ends[site] && columns[i] <= columns[i - 1])) return "the columns of a site do not increase to the last output";
        if (!(extras[i] >= 1 && extras[i] <= EXTRAS - sum)) return "an extra is too small or too large";
        sum += extras[i];
      }
      if (sum !== EXTRAS) return `the extras of a site do not sum to 2^${SUM_BITS}`;
    }
    return null;
  }

  /**
   * A draw is a unit below K·floor + 2^50. The first K·floor units belong to the outputs in turn. The others belong to the
   * alias table of the row's extras, padded to a power of two of columns: upper bits are the column, lower ones the height.
   * @returns {(site: number, source: WordSource) => number}
   */
  draws() {
    const { outputs, floor, ends, columns, extras } = this;
    const sites = ends.length - 1;
    const columnBits = Uint8Array.from({ length: sites }, (_, site) => 32 - Math.clz32(ends[site + 1] - ends[site] - 1));
    const starts = new Float64Array(sites + 1);
    for (let site = 0; site < sites; site++) starts[site + 1] = starts[site] + (1 << columnBits[site]);
    const keep = new Float64Array(starts[sites]);
    const alias = new Uint32Array(starts[sites]);
    for (let site = 0; site < sites; site++) {
      const left = new Float64Array(1 << columnBits[site]);
      left.set(extras.subarray(ends[site], ends[site + 1]));
      aliasRow(left, pow2(SUM_BITS - columnBits[site]), keep, alias, starts[site]);
    }
    const below = outputs * floor;
    return (site, source) => {
      const unit = integerBelow(source, below + EXTRAS);
      if (unit < below) return Math.floor(unit / floor);
      const height = pow2(SUM_BITS - columnBits[site]);
      const column = Math.floor((unit - below) / height);
      const at = starts[site] + column;
      // Padding keeps nothing and is nobody's alias, so the column is one of the row's own.
      return columns[ends[site] + (unit - below - column * height < keep[at] ? column : alias[at])];
    };
  }
}
