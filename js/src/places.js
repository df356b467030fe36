/** Ids and names of outputs: integers, or the bytes of text with one line per output. */

import { require } from "./errors.js";
import { asId, decodeUtf8 } from "./json.js";

/** @typedef {import("./archive.js").FileArray} FileArray */

export const PLACE_ARRAYS = ["output_ids", "output_names"];

const LONGEST_TEXT = 256;
// UTF-8 takes at most four bytes for a character, and a line feed ends every text.
const LONGEST_LINE = 4 * LONGEST_TEXT + 1;
const UNSAFE = /[\0-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]/;

/**
 * Return what outputs are called; null where they have no ids.
 * @param {FileArray | undefined} array
 * @param {number} count
 * @returns {(string | number | bigint)[] | null}
 */
export function readIds(array, count) {
  if (!array) return null;
  const whole = array.kind === "<i8" && array.shape.length === 1 && array.size === count;
  /** @type {(string | number | bigint)[]} */
  const ids = whole ? Array.from(array.integers(), asId) : lines("output_ids", array, count, 1);
  require(new Set(ids).size === ids.length, "`output_ids` must be different from each other");
  return ids;
}

/** @param {FileArray | undefined} array @param {number} count */
export const readNames = (array, count) => (array ? lines("output_names", array, count, 0) : null);

/**
 * Return the lines of a text. Their number and size are checked first, so that a file cannot ask for memory.
 * @param {string} name
 * @param {FileArray} array
 * @param {number} count
 * @param {number} shortest
 */
function lines(name, { kind, shape, bytes }, count, shortest) {
  const flat = kind === "|u1" && shape.length === 1 && bytes.length <= count * LONGEST_LINE;
  const ends = flat ? bytes.reduce((total, byte) => total + (byte === 10 ? 1 : 0), 0) : -1;
  require(ends === count && bytes[bytes.length - 1] === 10, `\`${name}\` must be one line of text for each output`);
  const found = decodeUtf8(bytes, name).split("\n").slice(0, -1);
  for (const text of found) {
    const length = [...text].length;
    const fits = length >= shortest && length <= LONGEST_TEXT;
    require(fits, `\`${name}\` must be made of texts of ${shortest} to ${LONGEST_TEXT} characters`);
    require(!UNSAFE.test(text), `\`${name}\` must be free of control characters and overrides of the writing direction`);
  }
  return found;
}
