/**
 * JSON, read strictly: no key twice, no nesting without end, whole numbers told from floats.
 *
 * Whole numbers become big integers and others floats, because "1" and "1.0" are different texts to the format. Objects
 * become maps, so that no key can touch a prototype.
 */

import { require } from "./errors.js";

/** @typedef {null | boolean | string | number | bigint | Json[] | Map<string, any>} Json */

const DEEPEST = 100;
const LONGEST_INTEGER = 4300;

// Marks, strings, numbers and words; NaN and infinities as Python reads and writes them.
const TOKEN =
  /[ \t\n\r]*([{}[\],:]|"[^"\\\0-\x1f]*(?:\\.[^"\\\0-\x1f]*)*"|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null|NaN|-?Infinity)[ \t\n\r]*/y;

/** @param {string} text @returns {Json} */
export function parseJson(text) {
  let at = 0;
  const next = () => {
    TOKEN.lastIndex = at;
    const match = TOKEN.exec(text);
    require(match, `the header is not JSON at character ${at}`);
    at = TOKEN.lastIndex;
    return match[1];
  };
  /** @param {string} token the first of the value @param {number} depth @returns {Json} */
  const value = (token, depth) => {
    if (token !== "{" && token !== "[") return single(token);
    require(depth < DEEPEST, "the header is nested too deeply");
    const fields = new Map();
    const end = token === "{" ? "}" : "]";
    for (let mark = next(); mark !== end; mark = next()) {
      if (fields.size) {
        require(mark === ",", "the header lacks a comma");
        mark = next();
      }
      const name = token === "{" ? mark : fields.size;
      if (token === "{") {
        require(mark[0] === '"' && next() === ":", "the header has a field without a name");
        mark = next();
      }
      const key = typeof name === "string" ? JSON.parse(name) : name;
      require(!fields.has(key), "the header has a field twice");
      fields.set(key, value(mark, depth + 1));
    }
    return token === "{" ? fields : [...fields.values()];
  };
  const found = value(next(), 0);
  require(at === text.length, "the header is longer than its JSON");
  return found;
}

/** @param {string} token @returns {Json} */
function single(token) {
  if (/^["tfn]/.test(token)) return JSON.parse(token);
  const isWhole = /^-?[0-9]+$/.test(token);
  // A mark has one letter, as no other number has.
  require(isWhole ? token.replace("-", "").length <= LONGEST_INTEGER : token.length > 1, "the header has a mark or a number that cannot be read");
  return isWhole ? BigInt(token) : Number(token);
}

/** Return whether two values would be written as the same text. @param {Json | undefined} a @param {Json | undefined} b @returns {boolean} */
export function sameJson(a, b) {
  if (Array.isArray(a)) return Array.isArray(b) && a.length === b.length && a.every((one, i) => sameJson(one, b[i]));
  if (a instanceof Map) return b instanceof Map && a.size === b.size && [...a].every(([name, value]) => sameJson(value, b.get(name)));
  // JSON has no infinity and no NaN.
  return Object.is(a, b) && (typeof a !== "number" || Number.isFinite(a));
}

/** Return plain data: objects, and numbers for whole numbers that they can hold. @param {Json} value @returns {any} */
export function plain(value) {
  if (Array.isArray(value)) return value.map(plain);
  if (value instanceof Map) {
    const object = Object.create(null);
    for (const [name, inner] of value) object[name] = plain(inner);
    return object;
  }
  return typeof value === "bigint" ? asId(value) : value;
}

/** Return a whole number as a number if that is exact. @param {bigint} value */
export const asId = (value) => (Number.isSafeInteger(Number(value)) ? Number(value) : value);
