/** Laplace noise whose noisy points fall into squares that are labelled with outputs. */

import { proved, refused } from "./claims.js";
import { must, require } from "./errors.js";
import { coarsestStep } from "./lattice.js";
import { LatticeNoise, noiseStep } from "./noise.js";
import { fraction, general, over, toNumber } from "./numbers.js";

/**
 * @typedef {import("./header.js").Box} Box
 * @typedef {import("./header.js").Common} Common
 * @typedef {import("./header.js").Header} Header
 * @typedef {import("./header.js").Found} Found
 * @typedef {import("./words.js").WordSource} WordSource
 */

// Minimum margin of the window in units of 1/rate, and its largest extent.
const LEAST_MARGIN = 1;
const WIDEST = 1e8;

// Python computes probabilities from walls between squares, cut into panels, and refuses files with too many.
const MOST_PANELS = 2 ** 20;
const LONGEST_PANEL = 0.6;
const RAY_LENGTH = 8;
const RAY_GROWTH = 1.6;
const NEGLIGIBLE = 50;

/** Noise of a rate over a box: rounds points to a lattice and adds a vector of it. */
export class Noisy {
  /** @param {number} rate @param {Box} box @param {number} p */
  constructor(rate, box, p) {
    this.rate = rate;
    this.step = noiseStep(box, rate);
    this.noise = new LatticeNoise(rate, this.step, p, box[0].length);
  }

  movedBy() {
    return this.step / 2;
  }

  /** Return a noisy point. @param {number[]} steps @param {WordSource} source */
  noisy(steps, source) {
    const noise = this.noise.draw(source);
    return steps.map((whole, axis) => {
      const v = noise[axis];
      return (typeof v === "bigint" ? Number(BigInt(whole) + v) : whole + v) * this.step;
    });
  }

  /**
   * Noise is private if it decays at ε at most, and if the lattice to which points are rounded is fine.
   * @param {import("./claims.js").Claimed} claimed
   * @returns {import("./proof.js").Finding}
   */
  prove(claimed) {
    const { step } = this;
    const decay = over(this.noise.rate, fraction(step));
    const share = over(decay, claimed.inPlane(claimed.epsilon));
    const isFine = step <= coarsestStep(claimed.box);
    const holds = isFine && share.n <= share.d;
    const worstRatio = isFine ? toNumber(share) : Infinity;
    const claim = holds
      ? proved(
          claimed,
          "Points are rounded to a lattice, and noise of that lattice is added whose probabilities are proportional to " +
            `exp(-${general(toNumber(decay))} d), ${general(worstRatio)} of epsilon; it covers the whole lattice, so their sum is ` +
            "the same from everywhere. What is done to the noisy point afterwards is post-processing. The noise is drawn " +
            "exactly. Assumed: the random bits are uniform.",
        )
      : refused(
          claimed,
          isFine
            ? `the noise decays at ${general(worstRatio)} of epsilon.`
            : `points are rounded to multiples of ${general(step)}, which is too coarse.`,
        );
    return { holds, claim, worstRatio, worstWhere: {}, checked: 1 };
  }
}

/** Noise, and the label of the square that the noisy point falls into. */
export class Laplace extends Noisy {
  /** @param {number} rate @param {Box} box @param {number} p @param {Box} window @param {number[]} shape @param {Float64Array} labels */
  constructor(rate, box, p, window, shape, labels) {
    super(rate, box, p);
    this.window = window;
    this.shape = shape;
    this.labels = labels;
    this.isDiagonal = shape.length === 2 && p === Infinity;
  }

  /** Take a point to the coordinates of the squares. @param {number[]} point */
  enter(point) {
    return this.isDiagonal ? [0.5 * point[0] + 0.5 * point[1], 0.5 * point[0] - 0.5 * point[1]] : point;
  }

  /** @returns {(steps: number[], source: WordSource) => number} */
  sampler() {
    return (steps, source) => this.labelAt(this.noisy(steps, source));
  }

  /** Return the label of a noisy point's square; a point on an edge belongs to the upper side. @param {number[]} noisy */
  labelAt(noisy) {
    const point = this.enter(noisy);
    const number = this.shape.reduce((sum, count, axis) => {
      const [low, high] = [this.window[0][axis], this.window[1][axis]];
      const pitch = (high - low) / count;
      // Edges are computed as numpy does, and the quotient only says where to look.
      let square = Math.min(Math.max(Math.floor((point[axis] - low) / pitch), 0), count - 1);
      while (square > 0 && point[axis] < square * pitch + low) square -= 1;
      while (square < count - 1 && point[axis] >= (square + 1) * pitch + low) square += 1;
      return sum * count + square;
    }, 0);
    return this.labels[number];
  }

  /** Return the smallest box of the squares' coordinates around a box. @param {Box} box @returns {Box} */
  around([low, high]) {
    /** @type {number[][]} */
    let corners = [[]];
    low.forEach((edge, axis) => (corners = corners.flatMap((corner) => [[...corner, edge], [...corner, high[axis]]])));
    const entered = corners.map((corner) => this.enter(corner));
    const ends = [Math.min, Math.max].map((end) => low.map((_, axis) => end(...entered.map((corner) => corner[axis]))));
    return /** @type {Box} */ (ends);
  }
}

/** @param {Common} common @returns {Found} */
export function readNoise({ box, p, settings }) {
  return { body: new Noisy(readRate(settings), box, p), settings: rateOnly(settings), kinds: {}, grid: null, box, breakpoints: [] };
}

/** @param {Header} settings */
function readRate(settings) {
  const rate = Number(settings.get("rate"));
  must(rate > 0 && rate < Infinity, "rate", "a positive finite number");
  return rate;
}

/** @param {Header} settings @returns {Header} */
const rateOnly = (settings) => new Map([["rate", readRate(settings)]]);

/** @param {Common} common @returns {Found} */
export function readLaplace({ box, p, count, settings, arrays }) {
  const axes = box[0].length;
  const given = arrays.get("window");
  const numbers = Array.from(given?.floats ?? []);
  const fits = given?.shape.length === 2 && given.shape[0] === 2 && given.shape[1] === axes;
  must(fits && numbers.every(Number.isFinite), "window", "finite, lower corner first");
  const window = /** @type {Box} */ ([numbers.slice(0, axes), numbers.slice(axes)]);
  const { shape, labels } = readLabels(arrays.get("labels"), axes, count);
  const rate = readRate(settings);
  const extent = Math.max(...window[0].map((edge, axis) => Math.abs(window[1][axis] - edge)));
  must(rate * extent <= WIDEST, "rate", "less for a window this wide");
  const body = new Laplace(rate, box, p, window, shape, labels);
  const around = body.around(box);
  const margins = window[0].flatMap((edge, axis) => [around[0][axis] - edge, window[1][axis] - around[1][axis]]);
  // A rounding below the least margin is no reason to refuse.
  must(Math.min(...margins) * rate >= LEAST_MARGIN * (1 - 1e-9), "window", "wider than the box by 1 / rate on every side");
  const isPlanar = axes === 2 && p === 2;
  require(!isPlanar || panels(body, around) <= MOST_PANELS, "`labels` must have fewer unequal neighbours");
  const kinds = { window: "<f8", labels: "<i8" };
  return { body, settings: rateOnly(settings), kinds, grid: new Map([["cells", shape.map(BigInt)]]), box, breakpoints: [] };
}

/** @param {import("./archive.js").FileArray | undefined} array @param {number} axes @param {number} outputs */
function readLabels(array, axes, outputs) {
  const isWhole = array?.kind === "<i8" || array?.kind === "<u2";
  must(isWhole && array.shape.length === axes, "labels", `whole numbers with ${axes} axes`);
  const labels = array.floats;
  must(labels.length && labels.every((label) => label >= 0 && label < outputs), "labels", "numbers of outputs");
  return { shape: array.shape, labels };
}

/** Return how many panels the walls between squares of different labels are cut into. @param {Laplace} body @param {Box} around */
function panels({ shape, labels, rate, window }, around) {
  let total = 0;
  for (const normal of [0, 1]) {
    const along = 1 - normal;
    const pitch = (window[1][along] - window[0][along]) / shape[along];
    const stride = [shape[1], 1];
    let walls = 0;
    let rays = 0;
    for (let i = 0; i + 1 < shape[normal]; i++) {
      for (let j = 0; j < shape[along]; j++) {
        const at = i * stride[normal] + j * stride[along];
        if (labels[at] === labels[at + stride[normal]]) continue;
        walls += 1;
        rays += (j === 0 ? 1 : 0) + (j === shape[along] - 1 ? 1 : 0);
      }
    }
    total += walls * Math.ceil((rate * pitch) / LONGEST_PANEL) + rays * rayPanels(rate, window, around, normal);
  }
  return total;
}

/** Return into how many panels a ray from the window's border to infinity is cut. @param {number} rate @param {Box} window @param {Box} box @param {number} normal */
function rayPanels(rate, window, box, normal) {
  const along = 1 - normal;
  const margin = Math.min(box[0][along] - window[0][along], window[1][along] - box[1][along]);
  const aside = Math.max(window[1][normal] - box[0][normal], box[1][normal] - window[0][normal]);
  const reach = Math.sqrt(margin * margin + aside * aside) + NEGLIGIBLE / rate;
  const end = Math.sqrt(reach * reach - aside * aside) - margin;
  let count = 0;
  for (let cut = 0; cut < end; count++) cut += Math.min(RAY_LENGTH / rate, RAY_GROWTH * (margin + cut));
  return count;
}
