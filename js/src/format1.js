/**
 * Files of format 1, which had no hash, the box among the arrays, the certificate in the report and tables in floating point.
 * Their numbers are read as Python's `float` and `int` read them, because some have them as text.
 */

import { FileArray } from "./archive.js";
import { KIND, RADIUS_KM } from "./earth.js";
import { InvalidInput, must, require } from "./errors.js";
import { finite, readBox, rebuild } from "./header.js";
import { integerRows } from "./integer_rows.js";
import { latticeStep } from "./lattice.js";
import { repr, rint } from "./numbers.js";
import { Spline, described, readBreakpoints, readSpline } from "./spline.js";
import { Dense } from "./tables.js";

/**
 * @typedef {import("./header.js").Header} Header
 * @typedef {import("./header.js").Arrays} Arrays
 * @typedef {import("./header.js").Common} Common
 * @typedef {import("./json.js").Json} Json
 */

const FIELDS = ["epsilon", "format", "kind", "method", "p", "projection", "report", "settings"];

// The only version that wrote format 1; its files do not say so.
const LIBRARY = "0.1.0";

const DECIMAL = /^[0-9]{1,400}(\.[0-9]{1,400})?(e[+-]?[0-9]{1,3})?$/;
const DIGITS = "[0-9]+(?:_[0-9]+)*";
const FLOAT = new RegExp(`^[+-]?(?:${DIGITS}\\.?(?:${DIGITS})?|\\.${DIGITS})(?:e[+-]?${DIGITS})?$`, "i");

/** @param {Header} header @param {Arrays} arrays */
export async function readFormat1(header, arrays) {
  must(FIELDS.every((name) => header.has(name)) && header.size === FIELDS.length, "header", `made of ${FIELDS.join(", ")}`);
  /** @type {any} */
  const { epsilon, p, projection, settings } = Object.fromEntries(header);
  must(typeof epsilon === "string" && DECIMAL.test(epsilon), "epsilon", "a decimal number");
  must(typeof p === "string", "p", "text");
  const report = new Map(/** @type {Header} */ (header.get("report")));
  const certificate = /** @type {any} */ (report.get("certificate")) ?? null;
  report.delete("certificate");
  const fields = new Map([
    ...header,
    ...Object.entries({
      epsilon: repr(asFloat(epsilon)),
      p: repr(asFloat(p)),
      box: readBounds(arrays.get("bounds")),
      projection: projection && readProjection(projection),
      library: LIBRARY,
      certificate: certificate && new Map([...certificate, ["p", finite(asFloat(certificate.get("p")))]]),
      report,
      settings: readSettings(settings, arrays),
      distance: "plane",
    }),
  ]);
  arrays.delete("bounds");
  const outputs = arrays.get("outputs");
  require(outputs, "it lacks 'outputs'");
  const found = await rebuild(fields, arrays, 1, readTable);
  const known = new Set(["outputs", ...found.settings.keys(), ...Object.keys(found.kinds)]);
  require([...settings.keys(), ...arrays.keys()].every((name) => known.has(name)), "its settings are not those of its kind");
  for (const [name, { kind }] of arrays) require(kind !== "|u1" && (found.kinds[name] !== "<u2" || kind === "<u2"), `\`${name}\` must hold other numbers`);
  require(!arrays.has("extras") || arrays.get("extras")?.kind === "<i8", "`extras` must be 64-bit integers");
  return { ...found, sha256: null };
}

/** @param {FileArray | undefined} bounds */
function readBounds(bounds) {
  require(bounds && bounds.shape.length <= 2, "it lacks 'bounds'");
  const numbers = Array.from(bounds.floats);
  const [rows, width = 1] = bounds.shape;
  return Array.from({ length: rows }, (_, row) => numbers.slice(row * width, row * width + width));
}

/** @param {Header} given */
function readProjection(given) {
  const [lon, lat] = ["lon_deg", "lat_deg"].map((name) => asFloat(given.get(name)));
  const radius = given.get("radius_km");
  must(given.get("kind") === KIND && (radius === RADIUS_KM || radius === BigInt(RADIUS_KM)), "projection", `'${KIND}' with radius_km 6371`);
  return new Map(Object.entries({ lon_deg: lon, lat_deg: lat }));
}

/** @param {Header} given @param {Arrays} arrays @returns {Header} */
function readSettings(given, arrays) {
  return new Map(
    [...given].map(([name, value]) => {
      const isSingle = !arrays.has(name) && !Array.isArray(value) && !(value instanceof Map);
      must(isSingle, "settings", "numbers or texts that are no arrays of the file");
      if (name === "degree" && typeof value === "boolean") return [name, BigInt(value)];
      return [name, name === "step" || name === "rate" ? asFloat(value) : value];
    }),
  );
}

/** @param {Json | undefined} value */
function asFloat(value) {
  if (typeof value === "number") return value;
  if (typeof value === "boolean") return Number(value);
  if (typeof value === "bigint" && Number.isFinite(Number(value))) return Number(value);
  if (typeof value === "string") {
    const text = value.trim().toLowerCase();
    const word = /^([+-]?)(inf|infinity|nan)$/.exec(text);
    if (word) return word[2] === "nan" ? NaN : word[1] === "-" ? -Infinity : Infinity;
    if (FLOAT.test(text)) return Number(text.replaceAll("_", ""));
  }
  throw new InvalidInput("a field that must be a number is none");
}

/**
 * Return the spline of a table in floating point, from before there were integers.
 * @param {Common} common
 */
function readTable(common) {
  const array = common.arrays.get("table");
  if (array?.kind !== "<f8") return readSpline(common);
  const { box, count, epsilon, p } = common;
  const degree = Number(common.settings.get("degree"));
  must([1n, 2n, 3n].includes(/** @type {bigint} */ (common.settings.get("degree"))), "degree", "1, 2 or 3");
  const step = latticeStep(readBox(box));
  const breakpoints = box[0].map((_, axis) => {
    const points = readBreakpoints(common.arrays, axis);
    const last = points.length - 1;
    const moved = points.map((x, i) => step * (i === 0 ? Math.floor : i === last ? Math.ceil : rint)(x / step));
    const rising = last > 0 && points.every((x, i) => Number.isFinite(x) && (i === 0 || (x > points[i - 1] && moved[i] > moved[i - 1])));
    must(rising && points[0] === box[0][axis] && points[last] === box[1][axis], "breakpoints", "rising, and span the box");
    return moved;
  });
  const sites = breakpoints.reduce((total, points) => total * (degree * (points.length - 1) + 1), 1);
  const { shape, floats } = array;
  const fits = shape.length === 2 && shape[0] === sites && shape[1] === count;
  must(fits && floats.every((x) => x > 0 && x < Infinity), "table", "positive and finite, one row for each site");
  const table = new Dense(count, integerRows(floats, count, breakpoints, degree, epsilon, p));
  const own = [0, 1].map((side) => breakpoints.map((points) => points[side ? points.length - 1 : 0]));
  return described(new Spline(step, breakpoints, degree, table), /** @type {import("./header.js").Box} */ (own), false);
}
