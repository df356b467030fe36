/** Exact noise without a file. */

import { Projection, kappaOver } from "./earth.js";
import { must, require } from "./errors.js";
import { Noisy } from "./laplace.js";
import { Mechanism } from "./mechanism.js";
import * as norms from "./norms.js";
import { floatBelow, fraction, over, shortestDecimal } from "./numbers.js";
import { VERSION } from "./version.js";
import { SecureWords } from "./words.js";

/**
 * Return exact lattice noise without places: coordinates in, coordinates out.
 * @param {object} options
 * @param {number} options.epsilon per true km where the box is in degrees, per unit of the coordinates otherwise
 * @param {number} [options.p] order of the norm that measures distance, in [1, Infinity]
 * @param {[number[], number[]]} [options.lonLatBox] [[west, south], [east, north]] in degrees
 * @param {[number[], number[]]} [options.box] lower and upper corner, of a mechanism without a map
 * @param {import("./words.js").WordSource} [options.source]
 */
export function noise({ epsilon, p = 2, lonLatBox, box, source = new SecureWords() }) {
  must(typeof epsilon === "number" && epsilon >= 1e-100 && epsilon <= 1e100, "epsilon", "a positive number");
  must(typeof p === "number" && p >= 1, "p", "a number in [1, Infinity]");
  require(!box !== !lonLatBox, "give the box either as `lonLatBox`, in degrees, or as `box`");
  const projection = lonLatBox ? centred(lonLatBox) : null;
  const corners = lonLatBox && projection ? lonLatBox.map(([lon, lat]) => projection.toPlane(lon, lat)) : box;
  const plane = checkedBox(corners);
  const kappa = projection ? kappaOver(projection, plane) : 1;
  require(kappa < Infinity, "the box reaches a pole or half around the Earth, where no map keeps distances");
  const rate = projection ? floatBelow(over(shortestDecimal(epsilon), fraction(kappa))) : epsilon;
  const contents = {
    body: new Noisy(rate, plane, p),
    kind: "noise",
    format: 3,
    method: "noise",
    library: VERSION,
    sha256: null,
    report: new Map(Object.entries({ rate, mean_distance: plane[0].length / rate })),
    epsilon,
    p,
    distance: projection ? "ground" : "plane",
    projection,
    box: plane,
    outputs: [],
    ids: null,
    names: null,
    map: null,
    norms,
  };
  return new Mechanism(contents, source, "the noise");
}

/** @param {[number[], number[]]} corners */
function centred([low, high]) {
  const isBox = low?.length === 2 && high?.length === 2 && [...low, ...high].every(Number.isFinite);
  must(isBox, "lonLatBox", "[[west, south], [east, north]] in degrees");
  let [west, east] = [low[0], high[0]];
  if (Math.abs(east - west) > 180) [west, east] = [west, east].map((lon) => (lon < 0 ? lon + 360 : lon)); // across the antimeridian
  const middle = (Math.min(west, east) + Math.max(west, east)) / 2;
  return new Projection(middle > 180 ? middle - 360 : middle, (low[1] + high[1]) / 2);
}

/** @param {number[][] | undefined} corners @returns {[number[], number[]]} */
function checkedBox(corners) {
  const [low, high] = corners ?? [];
  const fits = low?.length > 0 && low.length === high?.length && [...low, ...high].every((x) => Math.abs(x) <= 1e100);
  require(fits && low.every((edge, axis) => edge < high[axis]), "the box must be wider than zero on every axis");
  return [[...low], [...high]];
}
