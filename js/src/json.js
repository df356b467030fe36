/**
 * JSON and UTF-8, read strictly: no key twice, no nesting without end, whole numbers told from floats.
 *
 * Whole numbers become big integers and others floats, because "1" and "1.0" are different texts to the format. Objects
 * become maps, so that no key can touch a prototype.
 */

import { InvalidInput, require } from "./errors.js";

/** @typedef {null | boolean | string | number | bigint | Json[] | Map<string, any>} Json */

const DEEPEST = 100;
const LONGEST_INTEGER = 4300;
const NUMBER = /-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?/y;
const PLAIN = /[^"\\\u0000-\u001f]*/y;
const SPACE = /[ \t\n\r]*/y;
const ESCAPES = { '"': '"', "\\": "\\", "/": "/", b: "\b", f: "\f", n: "\n", r: "\r", t: "\t" };
const WORDS = { true: true, false: false, null: null, NaN: NaN, Infinity: Infinity, "-Infinity": -Infinity };

/** @param {string} text @returns {Json} */
export function parseJson(text) {
  const reader = new Reader(text);
  const value = reader.value(0);
  reader.take(SPACE);
  if (reader.at !== text.length) reader.fail();
  return value;
}

class Reader {
  /** @param {string} text */
  constructor(text) {
    this.text = text;
    this.at = 0;
  }

  /** @returns {never} */
  fail() {
    throw new InvalidInput(`the header is not JSON at character ${this.at}`);
  }

  /** @param {RegExp} pattern sticky */
  take(pattern) {
    pattern.lastIndex = this.at;
    const match = pattern.exec(this.text);
    if (match) this.at += match[0].length;
    return match;
  }

  /** @param {string} mark */
  skip(mark) {
    this.take(SPACE);
    if (this.text[this.at] !== mark) return false;
    this.at += 1;
    return true;
  }

  /** @param {number} depth @returns {Json} */
  value(depth) {
    if (this.skip("{")) return this.object(depth + 1);
    if (this.skip("[")) return this.list(depth + 1);
    if (this.skip('"')) return this.string();
    for (const [word, value] of Object.entries(WORDS)) {
      if (this.text.startsWith(word, this.at)) {
        this.at += word.length;
        return value;
      }
    }
    const number = this.take(NUMBER);
    if (!number || number[0] === "") this.fail();
    if (number[1] !== undefined || number[2] !== undefined) return Number(number[0]);
    if (number[0].replace("-", "").length > LONGEST_INTEGER) this.fail();
    return BigInt(number[0]);
  }

  /** @param {number} depth @returns {Map<string, Json>} */
  object(depth) {
    const fields = new Map();
    require(depth <= DEEPEST, "the header is nested too deeply");
    if (this.skip("}")) return fields;
    do {
      if (!this.skip('"')) this.fail();
      const name = this.string();
      require(!fields.has(name), "the header has a field twice");
      if (!this.skip(":")) this.fail();
      fields.set(name, this.value(depth));
    } while (this.skip(","));
    if (!this.skip("}")) this.fail();
    return fields;
  }

  /** @param {number} depth @returns {Json[]} */
  list(depth) {
    /** @type {Json[]} */
    const items = [];
    require(depth <= DEEPEST, "the header is nested too deeply");
    if (this.skip("]")) return items;
    do items.push(this.value(depth));
    while (this.skip(","));
    if (!this.skip("]")) this.fail();
    return items;
  }

  /** @returns {string} what stands before the closing quote */
  string() {
    let found = "";
    for (;;) {
      found += /** @type {RegExpExecArray} */ (this.take(PLAIN))[0];
      const mark = this.text[this.at];
      this.at += 1;
      if (mark === '"') return found;
      if (mark !== "\\") this.fail();
      found += this.escape();
    }
  }

  escape() {
    const letter = this.text[this.at];
    this.at += 1;
    if (letter === "u") {
      const digits = this.text.slice(this.at, this.at + 4);
      if (!/^[0-9a-fA-F]{4}$/.test(digits)) this.fail();
      this.at += 4;
      return String.fromCharCode(parseInt(digits, 16));
    }
    if (!Object.hasOwn(ESCAPES, letter)) this.fail();
    return ESCAPES[/** @type {keyof typeof ESCAPES} */ (letter)];
  }
}

/** Return whether two values would be written as the same text. @param {Json} a @param {Json} b @returns {boolean} */
export function sameJson(a, b) {
  if (Array.isArray(a)) return Array.isArray(b) && a.length === b.length && a.every((one, i) => sameJson(one, b[i]));
  if (a instanceof Map) {
    if (!(b instanceof Map) || a.size !== b.size) return false;
    return [...a].every(([name, value]) => b.has(name) && sameJson(value, b.get(name)));
  }
  if (typeof a === "number") return Number.isFinite(a) && Object.is(a, b); // JSON has no infinity and no NaN
  return a === b;
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

/**
 * Return the text of UTF-8 bytes; other bytes are refused, and so are surrogates and longer forms than needed.
 * @param {Uint8Array} bytes
 * @param {string} name
 */
export function decodeUtf8(bytes, name) {
  let text = "";
  let part = [];
  for (let at = 0; at < bytes.length; ) {
    const first = bytes[at];
    const length = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
    require(length && at + length <= bytes.length, `${name} is not UTF-8`);
    let point = length === 1 ? first : first & (0x7f >> length);
    for (let i = 1; i < length; i++) {
      require((bytes[at + i] & 0xc0) === 0x80, `${name} is not UTF-8`);
      point = (point << 6) | (bytes[at + i] & 0x3f);
    }
    const least = [0, 0, 0x80, 0x800, 0x10000][length];
    require(point >= least && point <= 0x10ffff && (point < 0xd800 || point > 0xdfff), `${name} is not UTF-8`);
    part.push(point);
    at += length;
    if (part.length === 4096) {
      text += String.fromCodePoint(...part);
      part = [];
    }
  }
  return text + String.fromCodePoint(...part);
}
