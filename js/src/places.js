/** Ids and names of outputs: integers, or the bytes of text with one line per output. */

import { decodeUtf8 } from "./engine.js";
import { must } from "./errors.js";
import { asId } from "./json.js";

/** @typedef {import("./archive.js").FileArray} FileArray */

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
  /** @type {(string | number | bigint)[]} */
  const ids = array.kind === "<i8" ? Array.from(array.numbers, asId) : lines("output_ids", array, count, 1);
  must(array.shape.length === 1 && ids.length === count && new Set(ids).size === count, "output_ids", "one for each output, all different");
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
  const isText = kind === "|u1" && shape.length === 1 && bytes.length <= count * LONGEST_LINE;
  const found = isText ? decodeUtf8(bytes).split("\n") : [];
  must(found.pop() === "" && found.length === count, name, "one line of text for each output");
  for (const text of found) {
    const { length } = [...text];
    must(length >= shortest && length <= LONGEST_TEXT && !UNSAFE.test(text), name, `texts of ${shortest} to ${LONGEST_TEXT} characters, free of control characters and overrides of the writing direction`);
  }
  return found;
}
