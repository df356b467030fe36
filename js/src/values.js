/** Numbers of a header as Python's `float` and `int` read them: old files may have them as text. */

import { InvalidInput, require } from "./errors.js";

/** @typedef {import("./json.js").Json} Json */

const DIGITS = "[0-9]+(?:_[0-9]+)*";
const FLOAT = new RegExp(`^[+-]?(?:${DIGITS}\\.?(?:${DIGITS})?|\\.${DIGITS})(?:e[+-]?${DIGITS})?$`, "i");

/** @param {Json | undefined} value */
export function asFloat(value) {
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

/** @param {string} name @param {Json | undefined} value */
export function positive(name, value) {
  const number = asFloat(value);
  require(number > 0 && number < Infinity, `\`${name}\` must be a positive finite number`);
  return number;
}

/** @param {string} name @param {Json | undefined} value @returns {bigint} */
export function asWhole(name, value) {
  require(typeof value === "bigint" || typeof value === "boolean", `\`${name}\` must be a whole number`);
  return BigInt(value);
}
