// The mechanism that reports are drawn from: a file, or exact planar noise over a region. Both are proved private here,
// each time before anything is drawn.

import { Projection } from "./core/earth.js";
import { load, noise } from "./core/whole.js";
import { fromBase64 } from "./settings.js";

/** The largest file that is kept; browsers give an extension 5 to 10 MB in all. */
export const LARGEST_FILE = 3_000_000;

// 95 % of planar Laplace noise of rate 1 lies within this radius: (1 + r) e^−r = 0.05.
const NOISE_RADIUS_95 = 4.743864518390555;

const EARTH_KM = 6371;
const GRID = 12;
const SHARE = 0.95;

/** Prove what the settings name. @throws if it is not proved private, or has no map. */
export async function provedMechanism({ kind, radiusM, region, bytes }) {
  if (kind === "noise") {
    const { west, south, east, north } = region;
    return noise({ epsilon: 1000 / radiusM, lonLatBox: [[west, south], [east, north]] });
  }
  const mechanism = await load(fromBase64(bytes));
  if (!mechanism.certificate.metres) throw new TypeError("This mechanism has no map, so it cannot report positions.");
  return mechanism;
}

/** What is constant about a mechanism: what it protects, and how far off its reports are. */
export function factsOf(mechanism) {
  const { epsilonPerKm, statement } = mechanism.certificate.metres;
  return {
    epsilon: epsilonPerKm,
    protectionM: 1000 / epsilonPerKm,
    accuracyM: Math.ceil(1000 * accuracyKm(mechanism)),
    statement,
    region: degreesOf(mechanism),
  };
}

/** The radius within which 95 % of reports lie. */
function accuracyKm(mechanism) {
  const { kind, report, box } = mechanism;
  if (kind === "noise") return NOISE_RADIUS_95 / report.rate;
  if (kind === "spline") return spreadKm(mechanism);
  // The file's word; without it, no report is farther off than the region is wide.
  const said = Number(report.report_distance_95);
  return said > 0 && Number.isFinite(said) ? said : Math.hypot(box[1][0] - box[0][0], box[1][1] - box[0][1]);
}

/** The same for a spline, over points spread evenly in its box. */
function spreadKm(mechanism) {
  const { box: [low, high], places } = mechanism;
  const plane = planeOf(mechanism);
  const outputs = places.map(({ lon, lat }) => plane.toPlane(lon, lat));
  const found = [];
  for (let i = 0; i < GRID ** 2; i++) {
    const share = [(i % GRID) + 0.5, Math.floor(i / GRID) + 0.5].map((step) => step / GRID);
    const point = share.map((part, axis) => low[axis] + part * (high[axis] - low[axis]));
    mechanism.probabilitiesAt(...point).forEach((chance, k) => {
      found.push([Math.hypot(outputs[k][0] - point[0], outputs[k][1] - point[1]), chance / GRID ** 2]);
    });
  }
  found.sort(([a], [b]) => a - b);
  let sum = 0;
  return found.find(([, chance]) => (sum += chance) >= SHARE)?.[0] ?? found.at(-1)[0];
}

const planeOf = ({ center }) => new Projection(center.lon, center.lat);

function degreesOf(mechanism) {
  const { box: [low, high] } = mechanism;
  const plane = planeOf(mechanism);
  const [west, south] = plane.toLonLat(low);
  const [east, north] = plane.toLonLat(high);
  return { west, south, east, north };
}

/** What the background draws with. */
export async function drawer(settings) {
  const mechanism = await provedMechanism(settings);
  return {
    epsilon: mechanism.certificate.metres.epsilonPerKm,
    accuracyM: settings.facts.accuracyM,
    draw: ({ lon, lat }) => mechanism.sample(lon, lat),
    isFarOutside: (place, marginKm) => outsideKm(mechanism, place) > marginKm,
  };
}

/** How far a place is from the mechanism's box on the ground; 0 inside. */
export function outsideKm(mechanism, { lon, lat }) {
  const { box: [low, high] } = mechanism;
  const plane = planeOf(mechanism);
  const point = plane.toPlane(lon, lat);
  const nearest = point.map((value, axis) => Math.min(Math.max(value, low[axis]), high[axis]));
  if (nearest.every((value, axis) => value === point[axis])) return 0;
  return greatCircleKm([lon, lat], plane.toLonLat(nearest));
}

function greatCircleKm([lon, lat], [otherLon, otherLat]) {
  const [a, b, turn] = [lat, otherLat, otherLon - lon].map((degrees) => (degrees * Math.PI) / 180);
  const half = Math.sin((b - a) / 2) ** 2 + Math.cos(a) * Math.cos(b) * Math.sin(turn / 2) ** 2;
  return 2 * EARTH_KM * Math.asin(Math.min(1, Math.sqrt(half)));
}
