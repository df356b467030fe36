/** The header of a mechanism file, turned into a mechanism with every field checked; one reader for each format number. */

import { readArchive } from "./archive.js";
import { KIND, Projection } from "./earth.js";
import { InvalidInput, UnsupportedKind, require } from "./errors.js";
import { Sha256 } from "./hashes.js";
import { isAlong, isMapArray, readMap } from "./epsilon_map.js";
import { decodeUtf8, parseJson, sameJson } from "./json.js";
import { readLaplace, readNoise } from "./laplace.js";
import { repr } from "./numbers.js";
import { PLACE_ARRAYS, readIds, readNames } from "./places.js";
import { readSpline } from "./spline.js";
import { asFloat, positive } from "./values.js";

/**
 * A box: its lower and its upper corner.
 * @typedef {[number[], number[]]} Box
 *
 * What every kind needs to read itself; `count` is K, the number of outputs.
 * @typedef {{box: Box, epsilon: number, p: number, count: number}} Common
 *
 * @typedef {import("./archive.js").FileArray} FileArray
 * @typedef {import("./json.js").Json} Json
 * @typedef {Map<string, Json>} Header
 */

const KINDS = {
  spline: { read: readSpline, first: 1, hasOutputs: true },
  "lattice-laplace": { read: readLaplace, first: 1, hasOutputs: true },
  noise: { read: readNoise, first: 3, hasOutputs: false },
};
const FLOATING_POINT = ["exponential", "log-convex", "cellwise"];

/** @type {Record<string, (value: Json) => boolean>} */
const TYPES = {
  box: Array.isArray,
  certificate: (value) => value === null || value instanceof Map,
  distance: isText,
  epsilon: isText,
  format: (value) => typeof value === "bigint",
  grid: (value) => value === null || value instanceof Map,
  kind: isText,
  library: isText,
  method: isText,
  p: isText,
  projection: (value) => value === null || value instanceof Map,
  report: (value) => value instanceof Map,
  settings: (value) => value instanceof Map,
  sha256: isText,
  units: (value) => value === null || isText(value),
};
const FORMAT_1_FIELDS = ["epsilon", "format", "kind", "method", "p", "projection", "report", "settings"];

const DECIMAL = /^[0-9]{1,400}(\.[0-9]{1,400})?(e[+-]?[0-9]{1,3})?$/;
const NAME = /^[A-Za-z0-9][A-Za-z0-9 ._+-]{0,63}$/;
const NO_HASH = "0".repeat(64);

// Products and squares of such numbers are finite and not zero.
const LARGEST = 1e100;

// Least width of the box and of cells, as a share of the coordinates.
const NARROWEST = 1e-9;

/** @param {Json | undefined} value */
function isText(value) {
  return typeof value === "string";
}

/** @param {Json | undefined} value */
function isNumber(value) {
  return typeof value === "number" || typeof value === "bigint";
}

/** The numbers, texts and arrays of a kind. */
export class Settings {
  /** @param {Header} numbers @param {Map<string, FileArray>} arrays */
  constructor(numbers, arrays) {
    this.numbers = numbers;
    this.arrays = arrays;
  }

  /** @param {string} name */
  has(name) {
    return this.numbers.has(name) || this.arrays.has(name);
  }

  /** @param {string} name */
  number(name) {
    const found = this.numbers.get(name);
    require(found !== undefined, `it lacks '${name}'`);
    return found;
  }

  /** @param {string} name */
  array(name) {
    const found = this.arrays.get(name);
    require(found, `\`${name}\` must be an array of the file`);
    return found;
  }
}

/**
 * What a file holds; nothing is said of whether the mechanism is private.
 * @param {Uint8Array} file
 */
export function readFile(file) {
  const { text, arrays } = readArchive(file);
  const header = parseJson(decodeUtf8(text, "the header"));
  require(header instanceof Map, "`header` must be a JSON object");
  const format = header.get("format");
  if (format === 3n || format === 2n) return readHashed(header, text, arrays, Number(format));
  if (format === 1n) return readFormat1(header, arrays);
  throw new InvalidInput("its format is not known to this version (it reads 1, 2, 3)");
}

/**
 * Formats 2 and 3. Format 2 had no `distance`, because every ε was per unit of the plane, and no sparse tables.
 * @param {Header} header
 * @param {Uint8Array} text
 * @param {Map<string, FileArray>} arrays
 * @param {number} format
 */
function readHashed(header, text, arrays, format) {
  const sixteen = [...arrays.values()].some((array) => array.kind === "<u2");
  require(format > 2 || !sixteen, "format 2 has no arrays of 16-bit numbers");
  const sha256 = checkHash(header.get("sha256"), text, arrays);
  requireTypes(header);
  const fields = format > 2 ? header : new Map([...header, ["distance", "plane"]]);
  const found = rebuild(fields, arrays, format);
  // Contradictory fields would not be saved like this.
  requireSame(header, arrays, found, format);
  return { ...found, sha256 };
}

/** Format 1 had no hash, the box among the arrays and the certificate in the report. @param {Header} header @param {Map<string, FileArray>} arrays */
function readFormat1(header, arrays) {
  const known = FORMAT_1_FIELDS.every((name) => header.has(name)) && header.size === FORMAT_1_FIELDS.length;
  require(known, `\`header\` must be made of ${FORMAT_1_FIELDS.join(", ")}`);
  requireTypes(header);
  require(!PLACE_ARRAYS.some((name) => arrays.has(name)), "`format` must be 3 for a file with ids or names");
  const bounds = arrays.get("bounds");
  require(bounds && bounds.shape.length <= 2, "it lacks 'bounds'");
  const numbers = Array.from(bounds.floats());
  const width = bounds.shape.length === 1 ? 1 : bounds.shape[1];
  const box = Array.from({ length: bounds.shape[0] }, (_, row) => numbers.slice(row * width, row * width + width));
  const others = new Map([...arrays].filter(([name]) => name !== "bounds"));
  const report = new Map(/** @type {Header} */ (header.get("report")));
  const certificate = report.get("certificate") ?? null;
  report.delete("certificate");
  const fields = new Map([
    ...header,
    ...Object.entries({ box, library: "0.1.0", certificate, report, distance: "plane" }),
  ]);
  requireTypes(fields);
  return { ...rebuild(fields, others, 1), sha256: null };
}

/** @param {Json | undefined} given @param {Uint8Array} text @param {Map<string, FileArray>} arrays */
function checkHash(given, text, arrays) {
  const isHash = typeof given === "string" && given.length === 64 && /^[\0-\x7f]*$/.test(given);
  require(isHash, "`sha256` must be 64 hexadecimal digits");
  const blank = text.slice();
  const digits = bytesOf(given);
  const zeros = bytesOf(NO_HASH);
  for (let at = 0; at + 64 <= blank.length; at++) {
    if (digits.every((byte, i) => text[at + i] === byte)) {
      blank.set(zeros, at);
      at += 63;
    }
  }
  const hash = new Sha256().update(blank);
  for (const [name, array] of [...arrays].sort(([a], [b]) => (a < b ? -1 : 1))) {
    hash.update(bytesOf(`${name} ${array.kind} ${array.shape.join(",")}\n`)).update(array.bytes);
  }
  require(hash.digest() === given, "its contents do not match its hash; it was damaged or changed");
  return given;
}

/** @param {string} ascii */
const bytesOf = (ascii) => Uint8Array.from(ascii, (letter) => letter.charCodeAt(0));

/** @param {Header} header */
function requireTypes(header) {
  for (const [name, value] of header) {
    require(Object.hasOwn(TYPES, name), "`header` must have no unknown field");
    require(TYPES[name](value), `\`${name}\` must be of another type`);
  }
}

/**
 * Return the mechanism that a header and its arrays describe, each of them checked.
 * @param {Header} header
 * @param {Map<string, FileArray>} arrays
 * @param {number} format
 */
function rebuild(header, arrays, format) {
  const text = (/** @type {string} */ name) => {
    const value = header.get(name);
    require(typeof value === "string", `it lacks '${name}'`);
    return value;
  };
  const kindName = text("kind");
  refuseFloatingPoint(kindName);
  const kind = Object.hasOwn(KINDS, kindName) ? KINDS[/** @type {keyof typeof KINDS} */ (kindName)] : null;
  require(kind && kind.first <= format, "`kind` must be one that its format knows");
  const box = readBox(header.get("box"));
  const axes = box[0].length;
  const epsilon = readEpsilon(text("epsilon"));
  const p = normOrder(text("p"));
  for (const name of ["library", "method"]) {
    require(NAME.test(text(name)), `\`${name}\` must be a short name of letters, digits, spaces and . _ + -`);
  }
  checkCertificate(header.get("certificate"), epsilon, p);
  const outputs = readOutputs(arrays.get("outputs"), axes, kind.hasOutputs);
  const ids = readIds(arrays.get("output_ids"), outputs.length);
  const names = readNames(arrays.get("output_names"), outputs.length);
  require(kind.hasOutputs || !(ids || names), "ids and names must be left out for a mechanism that reports coordinates");
  const projection = readProjection(header.get("projection"), axes);
  const distance = text("distance");
  require(distance === "plane" || distance === "ground", "`distance` must be one of 'plane', 'ground'");
  require(distance === "plane" || projection, "`distance` must be 'plane' for a mechanism without a projection");
  const settings = readSettings(header.get("settings"), arrays);
  const map = readMap(arrays, box, epsilon);
  require(format > 2 || ![...arrays.keys()].some(isMapArray), "`format` must be 3 for a file with a map of epsilon");
  const found = kind.read({ box, epsilon, p, count: outputs.length }, settings);
  require(!map || found.breakpoints.length, "a map of epsilon must be left out for this kind, which has one epsilon");
  require(!map || isAlong(map, found.breakpoints), "`epsilon_breakpoints` must be among the breakpoints");
  require(found.breakpoints.every(isWide), "`breakpoints` must be farther apart");
  const known = new Set([...found.settings.keys(), ...Object.keys(found.kinds)]);
  for (const name of [...settings.numbers.keys(), ...settings.arrays.keys()]) {
    require(known.has(name), `\`settings\` must be those of kind '${kindName}'`);
  }
  return {
    ...found,
    kind: kindName,
    format,
    method: text("method"),
    library: text("library"),
    report: /** @type {Header} */ (header.get("report")),
    epsilon,
    p,
    distance,
    projection,
    outputs,
    ids,
    names,
    map,
  };
}

/** @param {string} kind */
function refuseFloatingPoint(kind) {
  if (!FLOATING_POINT.includes(kind)) return;
  throw new UnsupportedKind(
    `mechanisms of kind '${kind}' draw from rows in floating point, which differ from engine to engine. ` +
      "Fit one with method 'spline', 'laplace' or 'laplace-remap' (or 'auto', and look at `metricdp info`), or use noise.",
  );
}

/** @param {Json | undefined} corners @returns {Box} */
function readBox(corners) {
  const isTable = Array.isArray(corners) && corners.length === 2 && corners.every((corner) => {
    return Array.isArray(corner) && corner.length > 0 && corner.every((x) => typeof x === "number" && Math.abs(x) <= LARGEST);
  });
  require(isTable, "`box` must be a lower and a higher corner of coordinates up to 1e+100");
  const [low, high] = /** @type {Box} */ (corners);
  const wide = low.length === high.length && low.every((edge, axis) => isWide([edge, high[axis]]));
  require(wide, "`box` must be 1e-09 of its coordinates wide at least");
  return [low, high];
}

/** Whether what lies between edges is wide enough to compute with. @param {ArrayLike<number>} edges */
function isWide(edges) {
  let [least, farthest] = [Infinity, Math.abs(edges[0])];
  for (let i = 1; i < edges.length; i++) {
    least = Math.min(least, edges[i] - edges[i - 1]);
    farthest = Math.max(farthest, Math.abs(edges[i]));
  }
  return least >= Math.max(NARROWEST * farthest, 1 / LARGEST);
}

/** @param {string} text */
function readEpsilon(text) {
  require(DECIMAL.test(text), "`epsilon` must be a decimal number");
  const epsilon = positive("epsilon", text);
  require(epsilon >= 1 / LARGEST && epsilon <= LARGEST, "`epsilon` must be from 1e-100 to 1e+100");
  return epsilon;
}

/** @param {Json | undefined} value */
function normOrder(value) {
  const p = asFloat(value);
  require(p >= 1, "`p` must be a number in [1, inf] (the order of the norm)");
  return p;
}

/** The certificate that was given with the mechanism must at least speak of this ε and p. @param {Json | undefined} given @param {number} epsilon @param {number} p */
function checkCertificate(given, epsilon, p) {
  require(given !== undefined, "it lacks 'certificate'");
  if (!(given instanceof Map)) return;
  const said = given.get("epsilon");
  // As Python compares: whole numbers exactly, and true as 1.
  const same = typeof said === "boolean" ? Number(said) === epsilon : said == /** @type {any} */ (epsilon) && isNumber(said);
  const holds = given.get("holds") === true && same && normOrder(given.get("p")) === p;
  require(holds, "`certificate` must be one that holds for this epsilon and p");
}

/** @param {FileArray | undefined} array @param {number} axes @param {boolean} hasOutputs @returns {number[][]} */
function readOutputs(array, axes, hasOutputs) {
  require(array !== undefined, "it lacks 'outputs'");
  const { shape } = array;
  if (!hasOutputs) {
    const empty = array.kind === "<f8" && shape.length === 2 && shape[0] === 0 && shape[1] === axes;
    require(empty, "`outputs` must be empty for this kind");
    return [];
  }
  const fits = (shape.length === 2 && shape[1] === axes) || (shape.length === 1 && axes === 1);
  require(fits && shape[0] > 0, "`outputs` must have one row for each output and one column for each axis");
  const numbers = Array.from(array.floats());
  require(numbers.every((x) => Math.abs(x) <= LARGEST), "`outputs` must have coordinates up to 1e+100");
  return Array.from({ length: shape[0] }, (_, row) => numbers.slice(row * axes, row * axes + axes));
}

/** @param {Json | undefined} values @param {number} axes */
function readProjection(values, axes) {
  require(values !== undefined, "it lacks 'projection'");
  if (!(values instanceof Map)) return null;
  require(axes === 2, "`projection` must be null unless the box has two axes");
  const [kind, lon, lat, radius] = ["kind", "lon_deg", "lat_deg", "radius_km"].map((name) => values.get(name));
  const ours = kind === KIND && (radius === 6371 || radius === 6371n) && lon !== undefined && lat !== undefined;
  require(ours, `\`projection\` must be '${KIND}' with radius_km 6371`);
  return new Projection(asFloat(lon), asFloat(lat));
}

/** @param {Json | undefined} numbers @param {Map<string, FileArray>} arrays */
function readSettings(numbers, arrays) {
  require(numbers instanceof Map, "it lacks 'settings'");
  for (const [name, value] of numbers) {
    const single = !arrays.has(name) && !Array.isArray(value) && !(value instanceof Map);
    require(single, "`settings` must be numbers or texts that are no arrays of the file");
  }
  const own = [...arrays].filter(([name]) => !PLACE_ARRAYS.includes(name) && !isMapArray(name));
  require(own.every(([, array]) => array.kind !== "|u1"), "only ids and names may be bytes of text");
  return new Settings(numbers, new Map(own.filter(([name]) => name !== "outputs")));
}

/**
 * Raise unless saving the mechanism would give this header and these arrays.
 * @param {Header} header
 * @param {Map<string, FileArray>} arrays
 * @param {ReturnType<typeof rebuild>} found
 * @param {number} format
 */
function requireSame(header, arrays, found, format) {
  const { projection } = found;
  const report = new Map(found.report);
  report.delete("library");
  report.delete("certificate");
  const certificate = header.get("certificate");
  const place = projection && { kind: KIND, lon_deg: projection.lon, lat_deg: projection.lat, radius_km: 6371 };
  const again = new Map(
    Object.entries({
      format: BigInt(format),
      kind: found.kind,
      method: found.method,
      epsilon: repr(found.epsilon),
      p: repr(found.p),
      box: found.box,
      projection: place && new Map(Object.entries(place)),
      units: projection ? "km" : null,
      grid: found.grid,
      library: found.library,
      certificate: certificate instanceof Map ? new Map([...certificate, ["p", finite(found.p)]]) : null,
      report,
      settings: found.settings,
      sha256: header.get("sha256"),
      ...(format > 2 ? { distance: found.distance } : {}),
    }),
  );
  require(sameJson(again, header), "its fields are not those that its mechanism would be saved with");
  /** @type {Record<string, string>} */
  const kinds = { outputs: "<f8", ...found.kinds };
  if (format > 2 && found.ids) kinds.output_ids = typeof found.ids[0] === "string" ? "|u1" : "<i8";
  if (format > 2 && found.names) kinds.output_names = "|u1";
  if (found.map) [...arrays.keys()].filter(isMapArray).forEach((name) => (kinds[name] = "<f8"));
  const same = arrays.size === Object.keys(kinds).length && [...arrays].every(([name, array]) => kinds[name] === array.kind);
  require(same, "its arrays are not those that its mechanism would be saved with");
}

/** JSON has no infinity. @param {number} p */
const finite = (p) => (p === Infinity ? "inf" : p);
