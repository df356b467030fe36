/**
 * Proofs, from the numbers that will be drawn from.
 *
 * Splines: at every site of every cell, for every output, the gradient's control values satisfy ‖g‖_q ≤ ε b. Weights and
 * cell sides in lattice steps are whole numbers and ε is the fraction that its decimal text says. Floating point, with its
 * error bounded, decides only the clear cases; the close ones are compared exactly. Noise: it decays at ε at most.
 */

import { proved, refused } from "./claims.js";
import { mapCells } from "./epsilon_map.js";
import { coarsestStep } from "./lattice.js";
import { exactNorm, norms } from "./noise.js";
import { fraction, frexp, general, isPowerOfTwo, rint, times, toNumber } from "./numbers.js";
import { Reals } from "./reals.js";
import { denseFault, sparseFault } from "./spline.js";

/**
 * What a proof came to.
 * @typedef {{holds: boolean, claim: string, worstRatio: number, worstWhere: object, checked: number}} Finding
 * @typedef {import("./claims.js").Claimed} Claimed
 * @typedef {import("./spline.js").Spline} Spline
 */

// With p = 1, 2 or ∞ a computed ratio is off by at most two dozen roundings, with other norms by 2^-43. What is closer to
// 1 than this is compared exactly.
const CLOSE = 256 * 2 ** -53;
const CLOSE_POWERS = 2 ** -40;

// Binary digits of the exact comparison for norms that no fraction gives.
const BITS = 256;

/** @param {Claimed} claimed @param {string} fault @param {number} checked @returns {Finding} */
function refusal(claimed, fault, checked) {
  return { holds: false, claim: refused(claimed, `${fault}.`), worstRatio: Infinity, worstWhere: {}, checked };
}

/** @param {Claimed} claimed @param {import("./laplace.js").Noisy} body @returns {Finding} */
export function proveNoise(claimed, body) {
  const { step } = body;
  if (step > coarsestStep(claimed.box)) {
    return refusal(claimed, `points are rounded to multiples of ${general(step)}, which is too coarse`, 1);
  }
  const share = body.share(claimed.inPlane(claimed.epsilon));
  const worstRatio = toNumber(share);
  if (share.n > share.d) {
    const claim = refused(claimed, `the noise decays at ${general(worstRatio)} of epsilon.`);
    return { holds: false, claim, worstRatio, worstWhere: {}, checked: 1 };
  }
  const claim = proved(
    claimed,
    "Points are rounded to a lattice, and noise of that lattice is added whose probabilities are proportional to " +
      `exp(-${general(body.decay())} d), ${general(worstRatio)} of epsilon; it covers the whole lattice, so their sum is ` +
      "the same from everywhere. What is done to the noisy point afterwards is post-processing. The noise is drawn " +
      "exactly. Assumed: the random bits are uniform.",
  );
  return { holds: true, claim, worstRatio, worstWhere: {}, checked: 1 };
}

/** @param {Claimed} claimed @param {Spline} body @returns {Finding} */
export function proveSpline(claimed, body) {
  const sites = body.cells.reduce((total, cells) => total * cells * (body.degree + 1), 1);
  const checked = sites * body.table.outputs;
  const fault = latticeFault(claimed, body) ?? (body.table.sparse ? sparseFault(body.table) : denseFault(body.table));
  if (fault) return refusal(claimed, fault, checked);
  const { ratio, place, output, inside } = new Cones(claimed, body).worst();
  const worstWhere = { points: [place], output };
  if (!inside) {
    const claim = refused(claimed, `the gradient's control values reach ${general(ratio, 15)} of epsilon at the place shown.`);
    return { holds: false, claim, worstRatio: ratio, worstWhere, checked };
  }
  const arithmetic = isExact(claimed.p, body.cells.length) ? "in exact integer arithmetic" : "with rounding counted against it";
  const own = claimed.isUniform ? "epsilon" : "the cell's own epsilon";
  const claim = proved(
    claimed,
    `Points are first rounded to multiples of 2^${frexp(body.step)[1] - 1}. At each of ${grouped(sites)} control sites, for ` +
      `every output, the gradient's control values are at most ${own} times the control value, checked ` +
      `${arithmetic} on the numbers that outputs are drawn from. Assumed: the random bits are uniform.`,
  );
  return { holds: true, claim, worstRatio: Math.min(ratio, 1), worstWhere, checked };
}

/** @param {number} n */
const grouped = (n) => String(n).replace(/\B(?=(\d{3})+$)/g, ",");

/** Say what is wrong with the lattice: a proof between its points says little of others unless it is fine. @param {Claimed} claimed @param {Spline} body */
function latticeFault({ box }, { step, breakpoints, degree }) {
  if (!isPowerOfTwo(step) || step > coarsestStep(box)) {
    return `points are rounded to multiples of ${general(step)}, which is too coarse for the box`;
  }
  const spans = breakpoints.every((points, axis) => {
    const onLattice = points.every((x) => rint(x / step) * step === x);
    return onLattice && points[0] === box[0][axis] && points[points.length - 1] === box[1][axis];
  });
  if (!spans) return "its breakpoints are not multiples of the lattice's step that span the box";
  return [1, 2, 3].includes(degree) ? null : "its degree is not 1, 2 or 3";
}

/** Whether close calls can be decided by fractions. @param {number} p @param {number} axes */
const isExact = (p, axes) => p === 1 || p === 2 || p === Infinity || axes === 1;

/** q with 1/p + 1/q = 1. @param {number} p */
const dual = (p) => (p === 1 ? Infinity : p === Infinity ? 1 : p / (p - 1));

/** The cones ‖G/H‖_q ≤ ε·step·b at the sites of all cells, with whole G, H and b. */
class Cones {
  /** @param {Claimed} claimed @param {Spline} body */
  constructor(claimed, body) {
    this.body = body;
    this.p = claimed.p;
    this.q = dual(claimed.p);
    this.exact = isExact(claimed.p, body.cells.length);
    /** ε·step of each cell of the map of ε. */
    this.limits = Array.from(claimed.map?.values ?? [claimed.epsilon], (epsilon) => {
      return times(claimed.inPlane(epsilon), fraction(body.step));
    });
    this.floatLimits = this.limits.map(toNumber);
    this.mapCell = claimed.map ? mapCells(claimed.map, body.breakpoints) : () => 0;
    this.level = 0;
    this.close = this.exact ? CLOSE : CLOSE_POWERS;
    this.axes = body.cells.length;
    this.strides = body.cells.map((_, axis) => (body.degree + 1) ** (this.axes - 1 - axis));
    this.slopes = new Float64Array(this.axes);
    this.sides = new Float64Array(this.axes);
    /** @type {(number | bigint)[]} */
    this.rises = Array(this.axes).fill(0);
    this.found = { ratio: -1, place: body.breakpoints.map((points) => points[0]), output: 0, inside: true };
  }

  /** Return the largest ratio, or the first that lies outside its cone. */
  worst() {
    const { body, found } = this;
    const inCell = body.cells.map(() => body.degree + 1);
    const weights = body.table.sparse ? new SparseWindow(body, inCell) : new DenseWindow(body, inCell);
    for (const cell of tuples(body.cells)) {
      weights.enter(cell);
      this.level = this.mapCell(cell);
      for (let axis = 0; axis < this.axes; axis++) {
        this.sides[axis] = body.edges[axis][cell[axis] + 1] - body.edges[axis][cell[axis]];
      }
      let site = 0;
      for (const place of tuples(inCell)) {
        this.#site(cell, place, site++, weights);
        if (!found.inside) return found;
      }
    }
    if (found.ratio < 0) found.ratio = 0;
    return found;
  }

  /** @param {number[]} cell @param {number[]} place @param {number} site @param {DenseWindow | SparseWindow} weights */
  #site(cell, place, site, weights) {
    const { degree } = this.body;
    for (const output of weights.outputs()) {
      const value = weights.at(site, output);
      for (let axis = 0; axis < this.axes; axis++) {
        this.rises[axis] = weights.rise(site, output, this.strides[axis], place[axis], degree);
        this.slopes[axis] = Math.abs(Number(this.rises[axis])) / this.sides[axis];
      }
      const total = weights.weight(value);
      const ratio = norms(this.slopes, this.q) / (this.floatLimits[this.level] * Number(total));
      if (ratio <= this.found.ratio && ratio < 1 - this.close) continue;
      const inside = ratio < 1 - this.close || (ratio <= 1 + this.close && this.#isInside(BigInt(total)));
      if (!inside || ratio > this.found.ratio) {
        const { breakpoints } = this.body;
        const where = place.map((a, axis) => {
          const [left, right] = breakpoints[axis].subarray(cell[axis], cell[axis] + 2);
          return left + ((right - left) * a) / degree;
        });
        this.found = Object.assign(this.found, { ratio, place: where, output, inside });
        if (!inside) return;
      }
    }
  }

  /** Compare in whole numbers; for norms that no fraction gives, what is within rounding counts as outside. @param {bigint} value */
  #isInside(value) {
    const rises = this.rises.map((rise) => BigInt(rise)).map((rise) => (rise < 0n ? -rise : rise));
    const sides = Array.from(this.sides, BigInt);
    // All slopes over one denominator: G_ℓ · Π of the other sides.
    const denominator = sides.reduce((a, b) => a * b, 1n);
    const slopes = rises.map((rise, axis) => (rise * denominator) / sides[axis]);
    const limit = this.limits[this.level];
    const allowed = limit.n * value * denominator;
    const scale = limit.d;
    const largest = slopes.reduce((a, b) => (a > b ? a : b));
    if (this.p === 1 || slopes.length === 1) return largest * scale <= allowed;
    if (this.p === Infinity) return slopes.reduce((a, b) => a + b, 0n) * scale <= allowed;
    if (this.p === 2) return slopes.reduce((sum, slope) => sum + slope * slope, 0n) * scale ** 2n <= allowed ** 2n;
    const size = exactNorm(new Reals(BITS), slopes, this.q)[1];
    // As in Python, where 256 roundings are the allowance for powers.
    return (size * scale) << 53n < ((allowed * (2n ** 53n - 256n)) << BigInt(BITS));
  }
}

/** Yield all tuples of whole numbers below the given ones, last fastest; always the same array. @param {number[]} shape */
function* tuples(shape) {
  const tuple = shape.map(() => 0);
  for (let axis = 0; axis >= 0; ) {
    yield tuple;
    for (axis = shape.length - 1; axis >= 0 && ++tuple[axis] === shape[axis]; axis--) tuple[axis] = 0;
  }
}

/** The rows of one cell's sites. */
class Window {
  /** @param {Spline} body @param {number[]} inCell sites along each axis */
  constructor(body, inCell) {
    this.body = body;
    const offsets = [];
    for (const place of tuples(inCell)) offsets.push(place.reduce((sum, a, axis) => sum + a * body.strides[axis], 0));
    this.offsets = Float64Array.from(offsets);
    this.rows = new Float64Array(offsets.length);
    this.count = body.table.outputs;
  }

  /** @param {number[]} cell */
  enter(cell) {
    const first = cell.reduce((sum, n, axis) => sum + n * this.body.degree * this.body.strides[axis], 0);
    this.offsets.forEach((offset, site) => (this.rows[site] = first + offset));
  }
}

class DenseWindow extends Window {
  /** @param {Spline} body @param {number[]} inCell sites along each axis */
  constructor(body, inCell) {
    super(body, inCell);
    const table = /** @type {import("./spline.js").Dense} */ (body.table);
    this.weights = table.weights;
    this.all = Array.from({ length: this.count }, (_, k) => k);
    /** 0 to 3, of the weights' type. @type {any[]} */
    this.factors = [0, 1, 2, 3].map((n) => (table.weights instanceof BigInt64Array ? BigInt(n) : n));
  }

  outputs() {
    return this.all;
  }

  /** @param {number} site @param {number} output @returns {any} */
  at(site, output) {
    return this.weights[this.rows[site] * this.count + output];
  }

  /** @param {any} value */
  weight(value) {
    return value;
  }

  /**
   * Return G = (m − a)(b(a + 1) − b(a)) + a (b(a) − b(a − 1)) along an axis whose sites are `stride` apart.
   * @param {number} site
   * @param {number} output
   * @param {number} stride
   * @param {number} a
   * @param {number} m
   */
  rise(site, output, stride, a, m) {
    const here = this.at(site, output);
    const ahead = a < m ? this.at(site + stride, output) - here : this.factors[0];
    const behind = a > 0 ? here - this.at(site - stride, output) : this.factors[0];
    return this.factors[m - a] * ahead + this.factors[a] * behind;
  }
}

/** Where an output has no extra at any site of a cell, its weights there are all the floor and its slopes are 0. */
class SparseWindow extends Window {
  /** @param {Spline} body @param {number[]} inCell sites along each axis */
  constructor(body, inCell) {
    super(body, inCell);
    this.table = /** @type {import("./spline.js").Sparse} */ (body.table);
    this.extras = new Float64Array(this.rows.length * this.count);
    /** @type {Set<number>} */
    this.present = new Set();
  }

  /** @param {number[]} cell */
  enter(cell) {
    for (const output of this.present) {
      for (let site = 0; site < this.rows.length; site++) this.extras[site * this.count + output] = 0;
    }
    super.enter(cell);
    this.present = new Set();
    const { ends, columns, extras } = this.table;
    this.rows.forEach((row, site) => {
      for (let i = ends[row]; i < ends[row + 1]; i++) {
        this.present.add(columns[i]);
        this.extras[site * this.count + columns[i]] = extras[i];
      }
    });
  }

  outputs() {
    return this.present;
  }

  /** @param {number} site @param {number} output */
  at(site, output) {
    return this.extras[site * this.count + output];
  }

  /** @param {number} extra */
  weight(extra) {
    return this.table.floor + extra;
  }

  /** See `DenseWindow`; floors cancel. @param {number} site @param {number} output @param {number} stride @param {number} a @param {number} m */
  rise(site, output, stride, a, m) {
    const here = this.at(site, output);
    const ahead = a < m ? this.at(site + stride, output) - here : 0;
    const behind = a > 0 ? here - this.at(site - stride, output) : 0;
    return (m - a) * ahead + a * behind;
  }
}
