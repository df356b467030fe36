/** A mechanism that was proved private, as an app uses it. */

import { Claimed } from "./claims.js";
import { NotCertified, require } from "./errors.js";
import { plain } from "./json.js";
import { toSteps } from "./lattice.js";

/**
 * @typedef {Omit<Awaited<ReturnType<typeof import("./header.js").readFile>>, "settings" | "kinds" | "grid" | "breakpoints">} Contents
 * @typedef {import("./claims.js").Certificate} Certificate
 * @typedef {import("./words.js").WordSource} WordSource
 */

/** The only way to a mechanism is `load` or `noise`, which prove it first. */
export class Mechanism {
  #body;
  #box;
  #projection;
  #outputs;
  #claimed;
  #source;
  #draw;

  /** @param {Contents} contents @param {WordSource} source @param {string} subject what an error is about */
  constructor(contents, source, subject) {
    const { body, box, projection, outputs, ids, names, map, report } = contents;
    this.#body = body;
    this.#box = box;
    this.#projection = projection;
    this.#outputs = outputs;
    this.#source = source;
    this.#claimed = new Claimed(contents, body.movedBy());
    this.kind = contents.kind;
    this.method = contents.method;
    this.format = contents.format;
    this.library = contents.library;
    this.sha256 = contents.sha256;
    this.epsilon = contents.epsilon;
    this.p = contents.p;
    this.distance = contents.distance;
    this.report = plain(report);
    this.secure = source.secure;
    this.box = Object.freeze(box.map((corner) => Object.freeze([...corner])));
    this.center = projection && Object.freeze({ lon: projection.lon, lat: projection.lat });
    this.places = Object.freeze(outputs.map((output, k) => this.#place(output, ids?.[k] ?? k, names?.[k] ?? null)));
    this.epsilonMap = map && map.plain();
    this.certificate = this.certify();
    if (!this.certificate.holds) throw new NotCertified(`${subject}: ${this.certificate.claim}`, this.certificate);
    this.claim = this.certificate.claim;
    this.#draw = body.sampler?.();
    Object.freeze(this);
  }

  /** Prove the claim once more, from the numbers that are drawn from. @returns {Certificate} */
  certify() {
    const claimed = this.#claimed;
    const fault = claimed.groundFault();
    const found = fault ? { holds: false, claim: fault, worstRatio: Infinity, worstWhere: {}, checked: 0 } : this.#body.prove(claimed);
    const [metres, paths] = found.holds ? [claimed.metres(), claimed.paths()] : [null, null];
    return Object.freeze({ ...found, epsilon: this.epsilon, p: this.p, metres, paths });
  }

  /**
   * Draw a report for a point in degrees.
   * @param {number} lon
   * @param {number} lat
   * @returns {import("../index.d.ts").Report}
   */
  sample(lon, lat) {
    return this.#report(this.#plane(lon, lat));
  }

  /** Draw a report for every point, in order. @param {Iterable<ArrayLike<number>>} points pairs of longitude and latitude */
  sampleMany(points) {
    return Array.from(points, (point) => this.sample(point[0], point[1]));
  }

  /** Draw a report for a point in the mechanism's own coordinates. @param {...number} point */
  samplePoint(...point) {
    const { index, noisy } = this.#drawn(this.#checked(point));
    if (index === null) return { index, id: null, name: null, point: /** @type {number[]} */ (noisy) };
    const { id, name } = this.places[index];
    return { index, id, name, point: [...this.#outputs[index]] };
  }

  /** Return the probability of each place from a point in degrees; for splines only. @param {number} lon @param {number} lat */
  probabilities(lon, lat) {
    return this.#probabilities(this.#plane(lon, lat));
  }

  /** Return the probability of each place from a point in the mechanism's own coordinates; for splines only. @param {...number} point */
  probabilitiesAt(...point) {
    return this.#probabilities(this.#checked(point));
  }

  /** @param {number} lon @param {number} lat */
  #plane(lon, lat) {
    require(this.#projection, "This mechanism has no projection, so it takes no longitude and latitude; use `samplePoint`.");
    return this.#projection.toPlane(lon, lat);
  }

  /** @param {number[]} point */
  #checked(point) {
    const axes = this.#box[0].length;
    require(point.length === axes && point.every(Number.isFinite), `a point must be ${axes} finite numbers`);
    return point;
  }

  /** @param {number[]} point in the plane */
  #report(point) {
    const { index, noisy } = this.#drawn(point);
    if (index !== null) return /** @type {import("../index.d.ts").Report} */ (this.places[index]);
    const [lon, lat] = /** @type {import("./earth.js").Projection} */ (this.#projection).toLonLat(/** @type {number[]} */ (noisy));
    // Noise may carry a report beyond a pole; a latitude ends there.
    return Object.freeze({ id: null, name: null, lon, lat: Math.min(Math.max(lat, -90), 90) });
  }

  /** @param {number[]} point */
  #drawn(point) {
    const steps = toSteps(point, this.#box, this.#body.step);
    if (this.#draw) return { index: this.#draw(steps, this.#source), noisy: null };
    return { index: null, noisy: this.#body.noisy(steps, this.#source) };
  }

  /** @param {number[]} point */
  #probabilities(point) {
    require(this.#body.probabilities, "Probabilities are computed on the device for splines only; noise is drawn without them.");
    return this.#body.probabilities(toSteps(point, this.#box, this.#body.step));
  }

  /** @param {number[]} output @param {string | number | bigint} id @param {string | null} name */
  #place(output, id, name) {
    if (this.#projection) {
      const [lon, lat] = this.#projection.toLonLat(output);
      return Object.freeze({ id, name, lon, lat });
    }
    const axes = output.length <= 3 ? ["x", "y", "z"] : output.map((_, axis) => `x${axis}`);
    return Object.freeze({ id, name, ...Object.fromEntries(output.map((x, axis) => [axes[axis], x])) });
  }
}
