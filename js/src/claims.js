/** What is claimed, in words and in metres; the words are those of the Python library. */

import { MARGIN_KM, kappaOver } from "./earth.js";
import { atLeast, fraction, general, nextUp, over, repr, shortestDecimal } from "./numbers.js";

/**
 * The claim on the ground: at most e^{E (d + r)} between two points as given, d in true km.
 * @typedef {object} Metres
 * @property {number} epsilonPerKm E; for p other than 2 it includes the factor from ℓ_p to straight distances
 * @property {number} roundingMm r, what rounding and floating point add to a distance
 * @property {number} kappa distances on the map are at most this times true ones; counted in E
 * @property {number} marginKm how far outside the box the claim reaches
 * @property {string} statement all of it in words
 *
 * The claim of a mechanism whose ε varies over the box: at most e^{∫ε ds} along every path inside it.
 * @typedef {object} Paths
 * @property {number} least
 * @property {number} most
 * @property {number} radiusLeast so far apart on a straight line, two places are told apart by a factor of at most e anywhere
 * @property {number} radiusMost and so far, where the straight line between them stays where ε is least
 * @property {number[]} cells of the map along each axis
 * @property {string} statement
 *
 * @typedef {object} Certificate
 * @property {boolean} holds whether the claim was proved
 * @property {number} epsilon
 * @property {number} p
 * @property {string} claim the statement, with its domain and its assumptions, in words
 * @property {number} worstRatio a bound on |ln z_k(x) − ln z_k(x')| / (ε (d + r)) for a proof, the worst value found otherwise
 * @property {object} worstWhere where that is
 * @property {number} checked how many comparisons were made
 * @property {Paths | null} paths the claim along paths, where ε varies over the box
 * @property {Metres | null} metres the claim on the Earth, where there is a projection and the claim was proved
 */

// A claim per kilometre of the map passes for one on the ground only if distances differ by less than this factor.
const LARGEST_UNCOUNTED = 1.01;

// By how much, in km, rounding may change a coordinate that is converted from degrees.
const PROJECTION_ERROR_KM = 5e-11;

/** What is claimed of a mechanism, and what must be proved for it. */
export class Claimed {
  /**
   * @param {object} fields
   * @param {number} fields.epsilon
   * @param {number} fields.p
   * @param {string} fields.distance
   * @param {import("./header.js").Box} fields.box
   * @param {import("./earth.js").Projection | null} fields.projection
   * @param {import("./epsilon_map.js").EpsilonMap | null} fields.map
   * @param {typeof import("./norms.js") | null} fields.norms for orders of the norm other than 1, 2 and ∞
   * @param {number} movedBy how far a point of the box is moved along each axis before anything else, at most
   */
  constructor({ epsilon, p, distance, box, projection, map, norms }, movedBy) {
    this.epsilon = epsilon;
    this.p = p;
    this.box = box;
    this.projection = projection;
    this.map = map;
    this.norms = norms;
    this.isUniform = !map || map.values.length === 1;
    this.isGround = distance === "ground";
    this.kappa = projection ? kappaOver(projection, box) : 1;
    const moved = movedBy + (projection ? PROJECTION_ERROR_KM : 0);
    /** r in the plane: moving two points by at most `moved` along each axis changes their distance by 2 N^{1/p} of that. */
    this.rounding = 2 * moved * this.#power(1 / p) * (1 + 1e-12);
  }

  /** Return a power of N, the number of axes, as near as floats come. @param {number} exponent from 0 to 1 */
  #power(exponent) {
    const axes = this.box[0].length;
    if (exponent === 1 / 2) return Math.sqrt(axes);
    return this.norms ? this.norms.power(axes, exponent) : exponent ? axes : 1;
  }

  /** Return an ε per unit of the plane: ε/κ on the ground, because plane distances are at most κ times true ones. @param {number} epsilon */
  inPlane(epsilon) {
    const decimal = shortestDecimal(epsilon);
    return this.isGround ? over(decimal, fraction(this.kappa)) : decimal;
  }

  /** ε per true km where there is a projection, per unit of the coordinates otherwise. */
  get claimedEpsilon() {
    return this.isGround || !this.projection ? this.epsilon : nextUp(this.epsilon * this.kappa);
  }

  /** r beside it. */
  get claimedRounding() {
    return this.projection ? (this.rounding / this.kappa) * (1 + 1e-12) : this.rounding;
  }

  /** ε per true km of straight distance where there is a projection: times the largest ratio of d_p to it, 1 for p ≥ 2. */
  get straightEpsilon() {
    if (!this.projection) return this.epsilon;
    const exponent = 1 / this.p - 1 / 2;
    const claimed = this.claimedEpsilon;
    if (exponent <= 0) return claimed;
    return claimed * (this.#power(exponent) * (1 + 1e-15)) * (1 + 1e-15);
  }

  /** Say why "per km" does not hold on the ground, if it does not. */
  groundFault() {
    if (!this.projection) return null;
    if (this.kappa === Infinity) {
      return refused(this, "its box reaches a pole or half around the Earth, where no map keeps distances.");
    }
    if (this.isGround || this.kappa <= LARGEST_UNCOUNTED) return null;
    return refused(
      this,
      `distances on its map are up to ${general(this.kappa)} times those on the ground, which its epsilon does not count. ` +
        "Fit it again, or take a box of fewer degrees.",
    );
  }

  /** State a proved claim along paths, where ε varies. @returns {Paths | null} */
  paths() {
    return this.map && this.map.paths(this);
  }

  /** Restate a proved claim on the ground. @returns {Metres | null} */
  metres() {
    if (!this.projection) return null;
    const epsilonPerKm = this.straightEpsilon;
    const roundingMm = this.claimedRounding * (this.claimedEpsilon / epsilonPerKm) * (1 + 1e-15) * 1e6 * (1 + 1e-12);
    const statement =
      `On the ground (WGS 84): between any two points of the box or within ${general(MARGIN_KM)} km of it, as given in ` +
      `longitude and latitude, no report is more than exp(${atLeast(epsilonPerKm, 10)} (d + r)) times likelier from one ` +
      `than from the other, d their distance in km and r = ${atLeast(roundingMm)} mm. Distances on the map are at ` +
      `most ${atLeast(this.kappa, 7)} times true ones, which is counted. Farther outside, d is the distance on the map.`;
    return Object.freeze({ epsilonPerKm, roundingMm, kappa: this.kappa, marginKm: MARGIN_KM, statement });
  }
}

/** @param {Claimed} claimed @param {string} reason */
export function proved(claimed, reason) {
  const rounding = claimed.isGround ? claimed.claimedRounding : claimed.rounding;
  const unit = claimed.projection ? " km" : "";
  const where = claimed.isGround ? " on the ground" : unit ? " on the map" : "";
  const axes = claimed.p !== 2 && claimed.isGround ? " (measured along east and north)" : "";
  const epsilon = repr(claimed.epsilon);
  const paths = claimed.paths();
  return (
    (paths ? `${paths.statement} In particular ` : "") +
    `(${epsilon}, d_${general(claimed.p)})-mDP on the whole box, for points as given: no report is more than ` +
    `exp(${epsilon} (d + r)) times likelier from one point than from another at distance d${unit}${where}${axes}, with ` +
    `r = ${atLeast(rounding)}${unit}. ${reason}`
  );
}

/** @param {Claimed} claimed @param {string} reason */
export const refused = (claimed, reason) =>
  `Not proved to be (${repr(claimed.epsilon)}, d_${general(claimed.p)})-mDP: ${reason}`;
