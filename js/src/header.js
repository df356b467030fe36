/** The header of a mechanism file, turned into a mechanism with every field checked. */

import { readArchive } from "./archive.js";
import { KIND, Projection, RADIUS_KM } from "./earth.js";
import { decodeUtf8, encodeUtf8, sha256 } from "./engine.js";
import { InvalidInput, UnsupportedKind, must, require } from "./errors.js";
import { parseJson, sameJson } from "./json.js";
import { isCommon } from "./lattice.js";
import { repr } from "./numbers.js";
import { parts } from "./parts.js";
import { readIds, readNames } from "./places.js";
import { readSpline } from "./spline.js";

/**
 * A box: its lower and its upper corner.
 * @typedef {[number[], number[]]} Box
 *
 * What every kind needs to read itself; `count` is K, the number of outputs.
 * @typedef {{box: Box, epsilon: number, p: number, count: number, settings: Header, arrays: Arrays}} Common
 *
 * A mechanism, the settings that a file would have of it, and which kind of numbers each of its arrays would hold.
 * @typedef {{body: any, settings: Header, kinds: Record<string, string>, grid: Header | null, box: Box, breakpoints: Float64Array[]}} Found
 *
 * @typedef {import("./archive.js").FileArray} FileArray
 * @typedef {import("./json.js").Json} Json
 * @typedef {Map<string, Json>} Header
 * @typedef {Map<string, FileArray>} Arrays
 */

const FLOATING_POINT = ["exponential", "log-convex", "cellwise"];
const NAME = /^[A-Za-z0-9][A-Za-z0-9 ._+-]{0,63}$/;

// Products and squares of such numbers are finite and not zero.
const LARGEST = 1e100;

// Least width of the box and of cells, as a share of the coordinates.
const NARROWEST = 1e-9;

/**
 * What a file holds; nothing is said of whether the mechanism is private.
 * @param {Uint8Array<ArrayBuffer>} file
 */
export async function readFile(file) {
  try {
    return await readFormat(file);
  } catch (error) {
    // What damaged bytes and fields of other types lead to; nothing else throws these.
    const isDamage = error instanceof RangeError || error instanceof TypeError || error instanceof SyntaxError || error instanceof URIError;
    throw isDamage ? new InvalidInput(`the file is damaged: ${error.message}`) : error;
  }
}

/** @param {Uint8Array<ArrayBuffer>} file */
async function readFormat(file) {
  const { text, arrays } = await readArchive(file);
  const json = decodeUtf8(text);
  const header = parseJson(json);
  must(header instanceof Map, "header", "a JSON object");
  const format = [1n, 2n, 3n].indexOf(/** @type {bigint} */ (header.get("format"))) + 1;
  require(format, "its format is not known to this version (it reads 1, 2, 3)");
  if (format === 1) return (await parts.format1()).readFormat1(header, arrays);
  const hash = await checkHash(header.get("sha256"), json, arrays);
  // Format 2 had no `distance`, because every ε was per unit of the plane.
  const found = await rebuild(format > 2 ? header : new Map([...header, ["distance", "plane"]]), arrays, format);
  requireSame(header, arrays, found, format);
  return { ...found, sha256: hash };
}

/** @param {Json | undefined} given @param {string} json @param {Arrays} arrays */
async function checkHash(given, json, arrays) {
  must(typeof given === "string" && /^[0-9a-f]{64}$/.test(given), "sha256", "64 hexadecimal digits");
  const hashed = [encodeUtf8(json.replaceAll(given, "0".repeat(64)))];
  for (const name of [...arrays.keys()].sort()) {
    const { kind, shape, bytes } = /** @type {FileArray} */ (arrays.get(name));
    hashed.push(encodeUtf8(`${name} ${kind} ${shape.join(",")}\n`), bytes);
  }
  require((await sha256(joined(hashed))) === given, "its contents do not match its hash; it was damaged or changed");
  return given;
}

/** @param {Uint8Array[]} several */
function joined(several) {
  const all = new Uint8Array(several.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const one of several) {
    all.set(one, at);
    at += one.length;
  }
  return all;
}

/**
 * Return the mechanism that a header and its arrays describe, each of them checked.
 * @param {Header} header
 * @param {Arrays} arrays
 * @param {number} format
 * @param {(common: Common) => Found} [read] what reads a spline
 */
export async function rebuild(header, arrays, format, read = readSpline) {
  const [kind, method, library, distance] = ["kind", "method", "library", "distance"].map((name) => {
    const text = header.get(name);
    must(typeof text === "string" && NAME.test(text), name, "a short name of letters, digits, spaces and . _ + -");
    return text;
  });
  refuseFloatingPoint(kind);
  const hasOutputs = kind !== "noise";
  must(kind === "spline" || kind === "lattice-laplace" || (!hasOutputs && format > 2), "kind", "one that its format knows");
  const box = readBox(header.get("box"));
  const axes = box[0].length;
  const [epsilon, p] = ["epsilon", "p"].map((name) => (header.get(name) === "inf" ? Infinity : Number(header.get(name))));
  must(epsilon >= 1 / LARGEST && epsilon <= LARGEST, "epsilon", "a number from 1e-100 to 1e+100");
  must(p >= 1, "p", "a number in [1, inf] (the order of the norm)");
  checkCertificate(header.get("certificate"), epsilon, p);
  const outputs = readOutputs(arrays.get("outputs"), axes, hasOutputs);
  const ids = readIds(arrays.get("output_ids"), outputs.length);
  const names = readNames(arrays.get("output_names"), outputs.length);
  require(hasOutputs || !(ids || names), "a mechanism that reports coordinates has no ids and names");
  const projection = readProjection(header.get("projection"), axes);
  must(distance === "plane" || (distance === "ground" && projection), "distance", "'plane', or 'ground' where there is a projection");
  const { settings, report } = Object.fromEntries(header);
  must(settings instanceof Map && report instanceof Map, "settings", "an object, and so must `report`");
  const common = { box, epsilon, p, count: outputs.length, settings, arrays };
  const found = kind === "spline" ? read(common) : (await parts.noise())[hasOutputs ? "readLaplace" : "readNoise"](common);
  must(found.breakpoints.every(isWide), "breakpoints", "farther apart");
  const hasMap = arrays.has("epsilon_values");
  require(!hasMap || (format > 2 && kind === "spline"), "this format or kind has one epsilon, and no map of it");
  const map = hasMap ? (await parts.map()).readMap(arrays, box, epsilon, found.breakpoints) : null;
  const norms = isCommon(p) ? null : await parts.norms();
  return { ...found, kind, format, method, library, report, epsilon, p, distance, projection, outputs, ids, names, map, norms };
}

/** @param {string} kind */
function refuseFloatingPoint(kind) {
  if (!FLOATING_POINT.includes(kind)) return;
  throw new UnsupportedKind(
    `mechanisms of kind '${kind}' draw from rows in floating point, which differ from engine to engine. ` +
      "Fit one with method 'spline', 'laplace' or 'laplace-remap' (or 'auto', and look at `metricdp info`), or use noise.",
  );
}

/** @param {any} corners @returns {Box} */
export function readBox(corners) {
  const [low, high] = corners;
  const wide = low.length && low.length === high.length && low.every((/** @type {Json} */ edge, /** @type {number} */ axis) => isWide([edge, high[axis]]));
  must(corners.length === 2 && wide, "box", "a lower and a higher corner of coordinates up to 1e+100");
  return corners;
}

/** Whether what lies between edges is wide enough to compute with. @param {ArrayLike<any>} edges */
function isWide(edges) {
  let [least, farthest] = [Infinity, 0];
  for (let i = 0; i < edges.length; i++) {
    if (typeof edges[i] !== "number" || !(Math.abs(edges[i]) <= LARGEST)) return false;
    if (i) least = Math.min(least, edges[i] - edges[i - 1]);
    farthest = Math.max(farthest, Math.abs(edges[i]));
  }
  return least >= Math.max(NARROWEST * farthest, 1 / LARGEST);
}

/** The certificate that was given with the mechanism must at least speak of this ε and p. @param {any} given @param {number} epsilon @param {number} p */
function checkCertificate(given, epsilon, p) {
  if (given === null) return;
  const said = given.get("epsilon");
  // As Python compares: whole numbers exactly, and true as 1.
  const same = typeof said !== "string" && typeof said !== "object" && said == epsilon;
  must(given.get("holds") === true && same && sameJson(given.get("p"), finite(p)), "certificate", "one that holds for this epsilon and p");
}

/** JSON has no infinity. @param {number} p */
export const finite = (p) => (p === Infinity ? "inf" : p);

/** @param {FileArray | undefined} array @param {number} axes @param {boolean} hasOutputs @returns {number[][]} */
function readOutputs(array, axes, hasOutputs) {
  const numbers = Array.from(array?.floats ?? []);
  const [rows, columns = hasOutputs ? 1 : 0, ...more] = array?.shape ?? [];
  must(rows > 0 === hasOutputs && columns === axes && !more.length, "outputs", "one row for each output and one column for each axis");
  must(numbers.every((x) => Math.abs(x) <= LARGEST), "outputs", "of coordinates up to 1e+100");
  return Array.from({ length: rows }, (_, row) => numbers.slice(row * axes, row * axes + axes));
}

/** @param {any} values @param {number} axes */
function readProjection(values, axes) {
  if (values === null) return null;
  must(axes === 2, "projection", "null unless the box has two axes");
  return new Projection(values.get("lon_deg"), values.get("lat_deg"));
}

/**
 * Raise unless saving the mechanism would give this header and these arrays: fields that contradict each other, are of other
 * types or are unknown would not be saved like this.
 * @param {Header} header
 * @param {Arrays} arrays
 * @param {Awaited<ReturnType<typeof rebuild>>} found
 * @param {number} format
 */
function requireSame(header, arrays, found, format) {
  const { projection, p } = found;
  const report = new Map(found.report);
  report.delete("library");
  report.delete("certificate");
  const again = Object.entries({
    format: BigInt(format),
    kind: found.kind,
    method: found.method,
    epsilon: repr(found.epsilon),
    p: repr(p),
    box: found.box,
    projection: projection && new Map(Object.entries({ kind: KIND, lon_deg: projection.lon, lat_deg: projection.lat, radius_km: RADIUS_KM })),
    units: projection && "km",
    grid: found.grid,
    library: found.library,
    certificate: header.get("certificate"),
    report,
    settings: found.settings,
    sha256: header.get("sha256"),
    ...(format > 2 && { distance: found.distance }),
  });
  require(sameJson(new Map(again), header), "its fields are not those that its mechanism would be saved with");
  /** @type {Record<string, string | false>} */
  const kinds = {
    outputs: "<f8",
    output_ids: !!found.ids && (typeof found.ids[0] === "string" ? "|u1" : "<i8"),
    output_names: !!found.names && "|u1",
    ...found.map?.kinds,
    ...found.kinds,
  };
  const isOld = format < 3 && (found.ids || found.names || [...arrays.values()].some(({ kind }) => kind === "<u2"));
  const same = [...Object.keys(kinds), ...arrays.keys()].every((name) => (kinds[name] || undefined) === arrays.get(name)?.kind);
  require(same && !isOld, "its arrays are not those that its mechanism would be saved with");
}
