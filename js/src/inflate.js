/** Deflated data (RFC 1951) unpacked. The engine's own DecompressionStream is missing on some phones. */

import { require } from "./errors.js";

const FAULT = "an entry is not deflated data";
const MOST_BITS = 15;
const ORDER = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

// Lengths and distances: each code has a base and so many extra bits.
const LENGTH_BITS = [...Array(8).fill(0), ...[1, 2, 3, 4, 5].flatMap((bits) => Array(4).fill(bits)), 0];
const DISTANCE_BITS = [0, 0, ...Array.from({ length: 28 }, (_, code) => code >> 1)];
const LENGTHS = bases(LENGTH_BITS, 3);
LENGTHS[28] = 258;
const DISTANCES = bases(DISTANCE_BITS, 1);

/** @param {number[]} bits @param {number} first */
function bases(bits, first) {
  let next = first;
  return bits.map((extra) => (next += 2 ** extra) - 2 ** extra);
}

/** Too little data; what was unpacked until then counts. */
const ENDED = Symbol("ended");

/**
 * Return what data unpacks to, up to `most` bytes: all of it, or less if the data ends early. Whoever knows the right
 * length compares.
 * @param {Uint8Array} data
 * @param {number} most
 */
export function inflate(data, most) {
  const unpacker = new Unpacker(data, most);
  try {
    unpacker.run();
  } catch (error) {
    if (error !== ENDED) throw error;
  }
  return unpacker.out.subarray(0, unpacker.size);
}

class Unpacker {
  /** @param {Uint8Array} data @param {number} most */
  constructor(data, most) {
    this.data = data;
    this.out = new Uint8Array(most);
    this.size = 0;
    this.at = 0;
    this.hold = 0;
    this.held = 0;
  }

  run() {
    for (let last = 0; !last && this.size < this.out.length; ) {
      last = this.bits(1);
      const kind = this.bits(2);
      require(kind < 3, FAULT);
      if (kind === 0) this.stored();
      else if (kind === 1) this.codes(...FIXED);
      else this.codes(...this.tables());
    }
  }

  /** Return the next bits, the first of them lowest. @param {number} count at most 16 */
  bits(count) {
    while (this.held < count) {
      if (this.at === this.data.length) throw ENDED;
      this.hold |= this.data[this.at++] << this.held;
      this.held += 8;
    }
    const value = this.hold & ((1 << count) - 1);
    this.hold >>>= count;
    this.held -= count;
    return value;
  }

  /** Return the next symbol of a code. @param {Code} code */
  symbol(code) {
    while (this.held < MOST_BITS && this.at < this.data.length) {
      this.hold |= this.data[this.at++] << this.held;
      this.held += 8;
    }
    const entry = code[this.hold & (code.length - 1)];
    const length = entry & 15;
    if (length > this.held || (entry === 0 && this.held < MOST_BITS)) throw ENDED;
    require(entry !== 0, FAULT);
    this.hold >>>= length;
    this.held -= length;
    return entry >> 4;
  }

  stored() {
    // What is left of the byte is skipped; whole bytes that were read ahead go back.
    this.at -= this.held >> 3;
    this.hold = this.held = 0;
    const length = this.bits(16);
    require(length === (~this.bits(16) & 0xffff), FAULT);
    const part = this.data.subarray(this.at, this.at + length).subarray(0, this.out.length - this.size);
    this.out.set(part, this.size);
    this.size += part.length;
    this.at += part.length;
    if (part.length < length) throw ENDED;
  }

  /** @param {Code} literals @param {Code} distances */
  codes(literals, distances) {
    const { out } = this;
    while (this.size < out.length) {
      const symbol = this.symbol(literals);
      if (symbol < 256) {
        out[this.size++] = symbol;
        continue;
      }
      if (symbol === 256) return;
      require(symbol < 286, FAULT);
      const length = LENGTHS[symbol - 257] + this.bits(LENGTH_BITS[symbol - 257]);
      const code = this.symbol(distances);
      require(code < 30, FAULT);
      const distance = DISTANCES[code] + this.bits(DISTANCE_BITS[code]);
      require(distance <= this.size, FAULT);
      const end = Math.min(this.size + length, out.length);
      for (; this.size < end; this.size++) out[this.size] = out[this.size - distance];
    }
  }

  /** @returns {[Code, Code]} */
  tables() {
    const literals = this.bits(5) + 257;
    const distances = this.bits(5) + 1;
    const count = this.bits(4) + 4;
    require(literals <= 286 && distances <= 30, FAULT);
    const sizes = new Uint8Array(19);
    for (let i = 0; i < count; i++) sizes[ORDER[i]] = this.bits(3);
    const code = decoder(sizes, false);
    const lengths = new Uint8Array(literals + distances);
    for (let i = 0; i < lengths.length; ) {
      const symbol = this.symbol(code);
      if (symbol < 16) {
        lengths[i++] = symbol;
        continue;
      }
      require(symbol !== 16 || i > 0, FAULT);
      const value = symbol === 16 ? lengths[i - 1] : 0;
      const repeat = symbol === 16 ? 3 + this.bits(2) : symbol === 17 ? 3 + this.bits(3) : 11 + this.bits(7);
      require(i + repeat <= lengths.length, FAULT);
      lengths.fill(value, i, i + repeat);
      i += repeat;
    }
    require(lengths[256] > 0, FAULT);
    return [decoder(lengths.subarray(0, literals), true), decoder(lengths.subarray(literals), true)];
  }
}

/**
 * For all bits of the longest code's length: symbol · 16 + length of the code that they start with, 0 where there is none.
 * @typedef {Uint16Array} Code
 */

/**
 * @param {Uint8Array} lengths of the codes of all symbols
 * @param {boolean} single whether one code of one bit, which leaves half of the bits unused, is allowed
 * @returns {Code}
 */
function decoder(lengths, single) {
  const longest = lengths.reduce((a, b) => Math.max(a, b), 0);
  const table = new Uint16Array(1 << longest); // no larger than needed: data may have very many codes
  let code = 0;
  let left = 1 << MOST_BITS;
  for (let length = 1; length <= longest; length++) {
    const step = 1 << length;
    for (let symbol = 0; symbol < lengths.length; symbol++) {
      if (lengths[symbol] !== length) continue;
      left -= 1 << (MOST_BITS - length);
      require(left >= 0, FAULT);
      for (let at = reversed(code++, length); at < table.length; at += step) table[at] = symbol * 16 + length;
    }
    code <<= 1;
  }
  // An incomplete code: allowed where it has no symbol, or one of one bit.
  require(left === 0 || (single && longest <= 1), FAULT);
  return table;
}

/** @param {number} code @param {number} length */
function reversed(code, length) {
  let result = 0;
  for (let bit = 0; bit < length; bit++) result |= ((code >> bit) & 1) << (length - 1 - bit);
  return result;
}

/** @type {[Code, Code]} */
const FIXED = [
  decoder(Uint8Array.from({ length: 288 }, (_, n) => (n < 144 ? 8 : n < 256 ? 9 : n < 280 ? 7 : 8)), true),
  decoder(new Uint8Array(32).fill(5), true),
];
