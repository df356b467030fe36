/**
 * Longitude and latitude to kilometres on a plane and back, and how much longer distances are on the plane than on the
 * WGS 84 ellipsoid.
 *
 * The map is x = k_x (λ − λ₀), y = k_y (φ − φ₀). With M and N the meridian and normal radii of the ellipsoid, plane
 * lengths are at most κ = max over latitudes of max(k_x / (N cos φ), k_y / M) times true ones. A shortest path on the
 * ground may leave the box towards a pole; its latitudes count.
 */

import { must } from "./errors.js";
import { atan, cos, sesqui, sin, tan } from "./functions.js";
import { rint } from "./numbers.js";

export const RADIUS_KM = 6371;
export const KIND = "equirectangular";

// WGS 84.
const EQUATOR_KM = 6378.137;
const FLATTENING = 1 / 298.257223563;
const ECCENTRICITY_SQUARED = FLATTENING * (2 - FLATTENING);

// How far outside the box a point may lie for the claim in metres to cover it.
export const MARGIN_KM = 1;

// κ is rounded up by this share, many thousand times what the floating point of its formulas loses.
const ROUNDED_UP = 1e-9;

// A larger factor means that the box comes near a pole or spans half the Earth; then there is no claim on the ground.
const LARGEST = 100;

/** @param {number} degrees */
const radians = (degrees) => degrees * (Math.PI / 180);

/** Return an angle within ±180 degrees. @param {number} degrees */
const wrapped = (degrees) => (Math.abs(degrees) > 180 ? degrees - 360 * rint(degrees / 360) : degrees);

/** The equirectangular projection about a centre. */
export class Projection {
  /** @param {number} lon @param {number} lat degrees */
  constructor(lon, lat) {
    must(Math.abs(lon) <= 180, "lon_deg", "between -180 and 180 degrees");
    must(Math.abs(lat) < 90, "lat_deg", "strictly between -90 and 90 degrees");
    // A file may have something else that counts as a number; it is refused because it would not be saved so.
    this.lon = Number(lon);
    this.lat = Number(lat);
    const alongMeridian = (RADIUS_KM * Math.PI) / 180;
    /** Kilometres on the plane per degree of longitude and of latitude. */
    this.kmPerDegree = Object.freeze([alongMeridian * cos(radians(lat)), alongMeridian]);
    Object.freeze(this);
  }

  /** Return kilometres east and north of the centre. @param {number} lon @param {number} lat */
  toPlane(lon, lat) {
    // Which of them, but not its value: it may be somebody's coordinate.
    must(Math.abs(lon) <= 180, "lon", "a number between -180 and 180 degrees");
    must(Math.abs(lat) <= 90, "lat", "a number between -90 and 90 degrees");
    return [wrapped(lon - this.lon) * this.kmPerDegree[0], (lat - this.lat) * this.kmPerDegree[1]];
  }

  /** Return degrees, longitude first. @param {ArrayLike<number>} point */
  toLonLat(point) {
    return [wrapped(point[0] / this.kmPerDegree[0] + this.lon), point[1] / this.kmPerDegree[1] + this.lat];
  }
}

/**
 * Return κ over a box and all points within a kilometre of it on the ground; infinite if there is none.
 *
 * The margin is in true kilometres and the box in those of the plane. If κ is k over the box widened by w on the plane,
 * and k times the margin is at most w, then a path as long as the margin stays within k times the margin.
 * @param {Projection} projection
 * @param {import("./header.js").Box} box
 */
export function kappaOver(projection, box) {
  let widened = MARGIN_KM;
  let kappa = kappaWidened(projection, box, widened);
  for (; kappa * MARGIN_KM > widened; kappa = kappaWidened(projection, box, widened)) {
    if (kappa === Infinity) return kappa;
    widened *= 2;
  }
  kappa = kappaWidened(projection, box, kappa * MARGIN_KM);
  const edges = [0, 1].map((side) => radians(projection.lat + box[side][1] / projection.kmPerDegree[1]));
  return kappa <= LARGEST && Math.max(...edges.map(Math.abs)) < Math.PI / 2 ? kappa : Infinity;
}

/** @param {Projection} projection @param {import("./header.js").Box} box @param {number} widened */
function kappaWidened(projection, [low, high], widened) {
  const [perLon, perLat] = projection.kmPerDegree;
  // Longitudes are taken within 180° of the centre. Across that meridian neighbours would be half a world apart.
  if (Math.max(Math.abs(low[0]), Math.abs(high[0])) + widened >= 180 * perLon) return Infinity;
  const south = radians(projection.lat + (low[1] - widened) / perLat);
  const north = radians(projection.lat + (high[1] + widened) / perLat);
  const width = radians((high[0] - low[0] + 2 * widened) / perLon);
  const reached = poleward(Math.max(Math.abs(south), Math.abs(north)), width);
  if (reached >= Math.PI / 2) return Infinity;
  const nearest = south <= 0 && north >= 0 ? 0 : Math.min(Math.abs(south), Math.abs(north));
  const [east, up] = [perLon * (180 / Math.PI), perLat * (180 / Math.PI)];
  return Math.max(east / eastRadius(reached), up / northRadius(nearest)) * (1 + ROUNDED_UP);
}

/**
 * Return the highest latitude of shortest paths between points up to `edge` from the equator, `width` apart. On the
 * auxiliary sphere the path is a great circle between reduced latitudes β, highest midway between two points of equal
 * latitude: tan β = tan β_edge / cos(half the span), with a span of at most width / (1 − f).
 * @param {number} edge
 * @param {number} width
 */
function poleward(edge, width) {
  const halfSpan = width / (2 * (1 - FLATTENING));
  if (halfSpan >= Math.PI / 2 || edge >= Math.PI / 2) return Math.PI / 2;
  const reduced = ((1 - FLATTENING) * tan(edge)) / cos(halfSpan);
  return atan(reduced / (1 - FLATTENING));
}

/** Return 1 − e² sin²φ. @param {number} latitude */
const squash = (latitude) => 1 - ECCENTRICITY_SQUARED * sin(latitude) * sin(latitude);

/** Return N cos φ, the kilometres per radian of longitude. @param {number} latitude */
const eastRadius = (latitude) => (EQUATOR_KM * cos(latitude)) / Math.sqrt(squash(latitude));

/** Return M, the kilometres per radian of latitude. @param {number} latitude */
const northRadius = (latitude) => (EQUATOR_KM * (1 - ECCENTRICITY_SQUARED)) / sesqui(squash(latitude));
