/** Random words of 64 bits, and what is drawn from them exactly: whole numbers below a bound, coins of a given ratio. */

import { pow2 } from "./numbers.js";

/**
 * Anything that yields uniform 64-bit words: `next` puts one into `hi` and `lo`, 32 bits each.
 * @typedef {{secure: boolean, hi: number, lo: number, next: () => void}} WordSource
 */

const AT_ONCE = 512;

/** Words of the engine's own cryptographic generator. A word is wiped when it is taken. */
export class SecureWords {
  secure = true;
  hi = 0;
  lo = 0;
  #pool = new Uint32Array(2 * AT_ONCE);
  #at = 2 * AT_ONCE;

  next() {
    const pool = this.#pool;
    if (this.#at === pool.length) {
      const { crypto } = globalThis;
      if (typeof crypto?.getRandomValues !== "function") {
        throw new Error(
          "This engine has no crypto.getRandomValues, so nothing can be drawn privately. " +
            "On React Native, import react-native-get-random-values first.",
        );
      }
      crypto.getRandomValues(pool);
      this.#at = 0;
    }
    this.hi = pool[this.#at];
    this.lo = pool[this.#at + 1];
    pool[this.#at++] = pool[this.#at++] = 0;
  }
}

/** @param {WordSource} source */
export const bigWord = (source) => (BigInt(source.hi) << 32n) | BigInt(source.lo);

/**
 * Return true with probability n/d exactly; whole numbers 0 ≤ n ≤ d ≤ 2^52.
 *
 * Words are the binary digits of a real number u, and the answer is u < n/d. A float holds the first word to 2^-53 of
 * itself, and that decides all but about one word in 2^50; then all digits count, and those of further words.
 * @param {WordSource} source
 * @param {number} n
 * @param {number} d
 * @returns {boolean}
 */
export function coin(source, n, d) {
  source.next();
  const product = (source.hi * 2 ** 32 + source.lo) * d;
  const limit = n * 2 ** 64;
  if (product < limit * (1 - 2 ** -50)) return true;
  if (product > limit * (1 + 2 ** -50)) return false;
  const left = (BigInt(n) << 64n) - bigWord(source) * BigInt(d);
  if (left <= 0n) return false;
  // w·d < n·2^64 < (w + 1)·d: the digits that follow w decide.
  return left >= BigInt(d) || coin(source, Number(left), d);
}

// Below this a float holds the product of a word and a bound to 2^-32.
const SMALL_BOUND = 2 ** 20;

/**
 * Return a whole number uniform on 0 … bound − 1, exactly, by rejection (Lemire 2019); bound ≤ 2^53.
 *
 * A word w gives ⌊w·bound / 2^64⌋. Words whose low product is below 2^64 mod bound are drawn again.
 * @param {WordSource} source
 * @param {number} bound
 * @returns {number}
 */
export function integerBelow(source, bound) {
  for (;;) {
    source.next();
    if (bound <= SMALL_BOUND) {
      const value = (source.hi * 2 ** 32 + source.lo) * bound * 2 ** -64;
      const whole = Math.floor(value);
      const rest = value - whole;
      // Neither the whole part nor the rejection is in doubt.
      if (rest > 2 ** -30 && rest < 1 - 2 ** -30) return whole;
    }
    const product = bigWord(source) * BigInt(bound);
    if (BigInt.asUintN(64, product) >= (1n << 64n) % BigInt(bound)) return Number(product >> 64n);
  }
}

/** Return the upper bits of the present word as a number; 1 ≤ bits ≤ 53. @param {WordSource} source @param {number} bits */
export function upperBits(source, bits) {
  if (bits <= 32) return source.hi >>> (32 - bits);
  return source.hi * pow2(bits - 32) + (source.lo >>> (64 - bits));
}
