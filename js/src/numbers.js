/** Floats taken apart and written as Python writes them; fractions of big integers. Only operations that IEEE 754 fixes. */

const view = new DataView(new ArrayBuffer(8));

/**
 * Return m and e with x = m·2^e and ½ ≤ m < 1, for a positive finite x.
 * @param {number} x
 * @returns {[number, number]}
 */
export function frexp(x) {
  view.setFloat64(0, x);
  const bits = (view.getUint32(0) >>> 20) & 0x7ff;
  if (bits === 0) {
    const [mantissa, exponent] = frexp(x * 2 ** 64); // subnormal
    return [mantissa, exponent - 64];
  }
  view.setUint32(0, (view.getUint32(0) & 0x800fffff) | 0x3fe00000);
  return [view.getFloat64(0), bits - 1022];
}

/** Return 2^e exactly; the engine's own power need not be exact. @param {number} e a whole number below 1024 @returns {number} */
export function pow2(e) {
  if (e < -1022) return e < -1100 ? 0 : pow2(e + 200) * pow2(-200);
  view.setUint32(0, (e + 1023) << 20);
  view.setUint32(4, 0);
  return view.getFloat64(0);
}

/** Return whether a positive number is a power of two. @param {number} x */
export const isPowerOfTwo = (x) => frexp(x)[0] === 0.5;

/** Round to the nearest whole number, ties to even; |x| ≤ 2^51. @param {number} x */
export const rint = (x) => x + 6755399441055744 - 6755399441055744;

/** Return the next float towards +∞ of a positive number. @param {number} x */
export function nextUp(x) {
  view.setFloat64(0, x);
  view.setBigUint64(0, view.getBigUint64(0) + 1n);
  return view.getFloat64(0);
}

/** Return the next float towards 0 of a positive number. @param {number} x */
export function nextDown(x) {
  view.setFloat64(0, x);
  view.setBigUint64(0, view.getBigUint64(0) - 1n);
  return view.getFloat64(0);
}

/** @param {bigint} n not negative */
export const bitLength = (n) => (n === 0n ? 0 : n.toString(2).length);

/**
 * A fraction n/d with d > 0, not reduced.
 * @typedef {{n: bigint, d: bigint}} Fraction
 */

/** Return the fraction that a finite float is. @param {number} x @returns {Fraction} */
export function fraction(x) {
  if (x === 0) return { n: 0n, d: 1n };
  const [mantissa, exponent] = frexp(Math.abs(x));
  const n = BigInt(mantissa * 2 ** 53) * (x < 0 ? -1n : 1n);
  return exponent >= 53 ? { n: n << BigInt(exponent - 53), d: 1n } : { n, d: 1n << BigInt(53 - exponent) };
}

/** Return the decimal number that a positive float is written as: its shortest digits. @param {number} x @returns {Fraction} */
export function shortestDecimal(x) {
  const [digits, exponent] = decimalDigits(x);
  const power = exponent - digits.length + 1;
  return power >= 0 ? { n: BigInt(digits) * 10n ** BigInt(power), d: 1n } : { n: BigInt(digits), d: 10n ** BigInt(-power) };
}

/** @param {Fraction} a @param {Fraction} b @returns {Fraction} */
export const times = (a, b) => ({ n: a.n * b.n, d: a.d * b.d });

/** @param {Fraction} a @param {Fraction} b positive @returns {Fraction} */
export const over = (a, b) => ({ n: a.n * b.d, d: a.d * b.n });

/** Return the float nearest to a fraction ≥ 0, ties to even. @param {Fraction} value */
export function toNumber({ n, d }) {
  if (n === 0n) return 0;
  const shift = 66 - bitLength(n) + bitLength(d);
  const [top, bottom] = shift >= 0 ? [n << BigInt(shift), d] : [n, d << BigInt(-shift)];
  const quotient = top / bottom;
  // A bit far below the float's last one keeps what the division cut off from looking like a tie.
  const sticky = top % bottom === 0n ? quotient : quotient | 1n;
  return scaled(Number(sticky), -shift);
}

/** @param {number} x @param {number} exponent */
function scaled(x, exponent) {
  const half = exponent >> 1;
  return x * pow2(half) * pow2(exponent - half);
}

/** Return the largest float that is at most a positive fraction. @param {Fraction} value */
export function floatBelow(value) {
  const nearest = toNumber(value);
  const exact = fraction(nearest);
  return exact.n * value.d <= value.n * exact.d ? nearest : nextDown(nearest);
}

/**
 * Return the digits of a positive float, at most so many, and the exponent of the first.
 * @param {number} x
 * @param {number} [digits]
 * @returns {[string, number]}
 */
export function decimalDigits(x, digits) {
  const [mantissa, exponent] = x.toExponential(digits === undefined ? undefined : digits - 1).split("e");
  return [mantissa.replace(".", ""), Number(exponent)];
}

/** @param {string} digits @param {number} exponent */
export function scientific(digits, exponent, least = 2) {
  const size = String(Math.abs(exponent)).padStart(least, "0");
  return `${digits[0]}${digits.length > 1 ? `.${digits.slice(1)}` : ""}e${exponent < 0 ? "-" : "+"}${size}`;
}

/** @param {string} digits @param {number} exponent */
export function fixed(digits, exponent) {
  if (exponent < 0) return `0.${"0".repeat(-exponent - 1)}${digits}`;
  const whole = digits.padEnd(exponent + 1, "0");
  return whole.length > exponent + 1 ? `${whole.slice(0, exponent + 1)}.${whole.slice(exponent + 1)}` : whole;
}

/** Return a float as Python's `repr` writes it: the shortest digits that give the float. @param {number} x */
export function repr(x) {
  if (x === Infinity) return "inf";
  const sign = x < 0 || Object.is(x, -0) ? "-" : "";
  if (x === 0) return `${sign}0.0`;
  const [digits, exponent] = decimalDigits(Math.abs(x));
  if (exponent < -4 || exponent >= 16) return sign + scientific(digits, exponent);
  const text = fixed(digits, exponent);
  return sign + (text.includes(".") ? text : `${text}.0`);
}

/** Return a number ≥ 0 as Python's format "g" writes it. @param {number} x */
export function general(x, precision = 6) {
  if (x === Infinity) return "inf";
  if (x === 0) return "0";
  const [all, exponent] = decimalDigits(x, precision);
  const digits = all.replace(/0+$/, "");
  return exponent < -4 || exponent >= precision ? scientific(digits, exponent) : fixed(digits, exponent);
}

/** Return a decimal number of so many digits that is not below `x`. @param {number} x */
export function atLeast(x, digits = 3) {
  const text = general(x, digits);
  return Number(text) >= x ? text : general(x * (1 + 1 / 10 ** (digits - 1)), digits);
}
