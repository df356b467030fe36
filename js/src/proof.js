/**
 * The proof of splines, from the numbers that will be drawn from: at every site of every cell, for every output, the
 * gradient's control values satisfy ‖g‖_q ≤ ε b. Weights and cell sides in lattice steps are whole numbers and ε is the
 * fraction that its decimal text says. Floating point, with its error bounded, decides only the clear cases; the close
 * ones are compared exactly.
 */

import { proved, refused } from "./claims.js";
import { isCommon, norm } from "./lattice.js";
import { fraction, frexp, general, times, toNumber } from "./numbers.js";

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

/** @param {Claimed} claimed @param {Spline} body @returns {Finding} */
export function proveSpline(claimed, body) {
  const sites = body.cells.reduce((total, cells) => total * cells * (body.degree + 1), 1);
  const checked = sites * body.table.outputs;
  const fault = body.fault(claimed.box);
  if (fault) return { holds: false, claim: refused(claimed, `${fault}.`), worstRatio: Infinity, worstWhere: {}, checked };
  const { ratio, place, output, inside } = new Cones(claimed, body).worst();
  const arithmetic = isExact(claimed.p, body.cells.length) ? "in exact integer arithmetic" : "with rounding counted against it";
  const own = claimed.isUniform ? "epsilon" : "the cell's own epsilon";
  const claim = inside
    ? proved(
        claimed,
        `Points are first rounded to multiples of 2^${frexp(body.step)[1] - 1}. At each of ${grouped(sites)} control sites, for ` +
          `every output, the gradient's control values are at most ${own} times the control value, checked ` +
          `${arithmetic} on the numbers that outputs are drawn from. Assumed: the random bits are uniform.`,
      )
    : refused(claimed, `the gradient's control values reach ${general(ratio, 15)} of epsilon at the place shown.`);
  return { holds: inside, claim, worstRatio: inside ? Math.min(ratio, 1) : ratio, worstWhere: { points: [place], output }, checked };
}

/** @param {number} n */
const grouped = (n) => String(n).replace(/\B(?=(\d{3})+$)/g, ",");

/** Whether close calls can be decided by fractions. @param {number} p @param {number} axes */
const isExact = (p, axes) => isCommon(p) || axes === 1;

/** q with 1/p + 1/q = 1. @param {number} p */
const dual = (p) => (p === 1 ? Infinity : p === Infinity ? 1 : p / (p - 1));

/** The cones ‖G/H‖_q ≤ ε·step·b at the sites of all cells, with whole G, H and b. */
class Cones {
  /** @param {Claimed} claimed @param {Spline} body */
  constructor(claimed, body) {
    const { table, cells, degree } = body;
    const axes = cells.length;
    this.body = body;
    this.norms = claimed.norms;
    this.p = claimed.p;
    this.q = dual(claimed.p);
    this.close = isExact(claimed.p, axes) ? CLOSE : CLOSE_POWERS;
    /** ε·step of each cell of the map of ε. */
    this.limits = Array.from(claimed.map?.values ?? [claimed.epsilon], (epsilon) => {
      return times(claimed.inPlane(epsilon), fraction(body.step));
    });
    this.floatLimits = this.limits.map(toNumber);
    this.mapCell = claimed.map ? claimed.map.cells(body.breakpoints) : () => 0;
    this.level = 0;
    /** Of the present cell: its sides in lattice steps, and at each site what outputs have beside the floor. */
    this.sides = new Float64Array(axes);
    this.inCell = cells.map(() => degree + 1);
    this.strides = cells.map((_, axis) => (degree + 1) ** (axes - 1 - axis) * table.outputs);
    /** @type {any} */
    this.values = table.blank((degree + 1) ** axes * table.outputs);
    this.present = [...table.everywhere()];
    /** 0 to 3, of the weights' type. @type {any[]} */
    this.factors = [0, 1, 2, 3].map((n) => (typeof table.floor === "bigint" ? BigInt(n) : n));
    this.slopes = new Float64Array(axes);
    /** @type {(number | bigint)[]} */
    this.rises = Array(axes).fill(0);
    this.found = { ratio: 0, place: body.breakpoints.map((points) => points[0]), output: 0, inside: true };
  }

  /** Return the largest ratio, or the first that lies outside its cone. */
  worst() {
    const { body, found } = this;
    for (const cell of tuples(body.cells)) {
      this.#enter(cell);
      let at = 0;
      for (const place of tuples(this.inCell)) {
        for (const output of this.present) if (!this.#isFine(cell, place, at + output, output)) return found;
        at += body.table.outputs;
      }
    }
    return found;
  }

  /** @param {number[]} cell */
  #enter(cell) {
    const { table, strides, degree, edges } = this.body;
    this.level = this.mapCell(cell);
    cell.forEach((n, axis) => (this.sides[axis] = edges[axis][n + 1] - edges[axis][n]));
    // Where an output has nothing beside the floor at any site, its slopes are 0.
    for (const output of this.present) for (let at = output; at < this.values.length; at += table.outputs) this.values[at] = this.factors[0];
    const present = table.everywhere();
    let at = 0;
    for (const place of tuples(this.inCell)) {
      const site = place.reduce((sum, a, axis) => sum + (cell[axis] * degree + a) * strides[axis], 0);
      table.put(site, this.values, at, present);
      at += table.outputs;
    }
    this.present = [...present];
  }

  /**
   * Return false outside the cone; notes the worst.
   *
   * The rise along an axis is G = (m − a)(b(a + 1) − b(a)) + a (b(a) − b(a − 1)), where floors cancel.
   * @param {number[]} cell
   * @param {number[]} place a of each axis
   * @param {number} at
   * @param {number} output
   */
  #isFine(cell, place, at, output) {
    const { found, rises, slopes, sides, strides, values, factors, close } = this;
    const { degree, table } = this.body;
    const here = values[at];
    for (let axis = 0; axis < slopes.length; axis++) {
      const a = place[axis];
      const ahead = a < degree ? values[at + strides[axis]] - here : factors[0];
      const behind = a > 0 ? here - values[at - strides[axis]] : factors[0];
      rises[axis] = factors[degree - a] * ahead + factors[a] * behind;
      slopes[axis] = Math.abs(Number(rises[axis])) / sides[axis];
    }
    const weight = table.floor + here;
    const ratio = norm(slopes, this.q, this.norms) / (this.floatLimits[this.level] * Number(weight));
    const inside = ratio < 1 - close || (ratio <= 1 + close && this.#isInside(BigInt(weight)));
    if (inside && ratio <= found.ratio) return true;
    Object.assign(found, { ratio, place: this.#where(cell, place), output, inside });
    return inside;
  }

  /** @param {number[]} cell @param {number[]} place */
  #where(cell, place) {
    const { breakpoints, degree } = this.body;
    return place.map((a, axis) => {
      const [left, right] = breakpoints[axis].subarray(cell[axis], cell[axis] + 2);
      return left + ((right - left) * a) / degree;
    });
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
    const { exactNorm, Reals } = /** @type {typeof import("./norms.js")} */ (this.norms);
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
