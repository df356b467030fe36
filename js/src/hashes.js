/** SHA-256 and CRC-32. The engine's own SHA-256 is missing outside secure contexts and on some phones. */

import { integerRoot } from "./reals.js";

/** The first 64 primes, whose roots give SHA-256 its constants (FIPS 180-4, 4.2.2). */
/** @type {bigint[]} */
const PRIMES = [];
for (let n = 2n; PRIMES.length < 64; n++) if (PRIMES.every((prime) => n % prime)) PRIMES.push(n);

/** Return the first 32 bits after the point of a cube root. @param {bigint} n */
function cubeRootBits(n) {
  let low = 0n;
  for (let bit = 1n << 34n; bit; bit >>= 1n) if ((low + bit) ** 3n <= n << 96n) low += bit;
  return Number(BigInt.asUintN(32, low));
}

const ROUNDS = Uint32Array.from(PRIMES, cubeRootBits);
const START = PRIMES.slice(0, 8).map((prime) => Number(BigInt.asUintN(32, integerRoot(prime << 64n))));

/** SHA-256 of bytes that come in parts. */
export class Sha256 {
  #state = Uint32Array.from(START);
  #block = new Uint8Array(64);
  #view = new DataView(this.#block.buffer);
  #words = new Uint32Array(64);
  #length = 0;

  /** @param {Uint8Array} bytes */
  update(bytes) {
    const block = this.#block;
    let filled = this.#length % 64;
    for (let at = 0; at < bytes.length; at++) {
      block[filled++] = bytes[at];
      if (filled === 64) {
        this.#mix();
        filled = 0;
      }
    }
    this.#length += bytes.length;
    return this;
  }

  /** Return the hash as hexadecimal digits. */
  digest() {
    const bits = this.#length * 8;
    this.update(Uint8Array.of(0x80, ...new Uint8Array((119 - (this.#length % 64)) % 64)));
    this.#view.setUint32(56, Math.floor(bits / 2 ** 32));
    this.#view.setUint32(60, bits >>> 0);
    this.#mix();
    return Array.from(this.#state, (word) => word.toString(16).padStart(8, "0")).join("");
  }

  #mix() {
    const w = this.#words;
    for (let i = 0; i < 16; i++) w[i] = this.#view.getUint32(4 * i);
    for (let i = 16; i < 64; i++) {
      const x = w[i - 15];
      const y = w[i - 2];
      const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
      const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    const state = this.#state;
    let [a, b, c, d, e, f, g, h] = state;
    for (let i = 0; i < 64; i++) {
      const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
      const one = (h + s1 + ((e & f) ^ (~e & g)) + ROUNDS[i] + w[i]) | 0;
      const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
      const two = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      h = g;
      g = f;
      f = e;
      e = (d + one) | 0;
      d = c;
      c = b;
      b = a;
      a = (one + two) | 0;
    }
    // Written out, because an array for every 64 bytes keeps the garbage collector busy.
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
    state[5] += f;
    state[6] += g;
    state[7] += h;
  }
}

const CRC = new Uint32Array(256);
for (let n = 0; n < 256; n++) {
  let value = n;
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
  CRC[n] = value;
}

/** Return the CRC-32 of zip archives. @param {Uint8Array} bytes */
export function crc32(bytes) {
  let value = -1;
  for (let i = 0; i < bytes.length; i++) value = (value >>> 8) ^ CRC[(value ^ bytes[i]) & 255];
  return ~value >>> 0;
}
