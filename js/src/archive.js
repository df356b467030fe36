/** Zip archives of one JSON text and plain arrays, read without trusting them: sizes are checked before memory is taken. */

import { inflated } from "./engine.js";
import { require } from "./errors.js";
import { parts } from "./parts.js";

const HEADER = "header.json";
const ARRAY_NAME = /^([a-z][a-z0-9_]{0,39})\.npy$/;

// Deflated data may unpack to a thousand times its size. So its size is limited: to this many bytes, or to this many
// times the size of the file, whichever is more. Stored data is as large as its file.
const LARGEST_HEADER = 2 ** 20;
const LARGEST_DEFLATED = 2 ** 26;
const LARGEST_GROWTH = 16;
const MOST_ENTRIES = 64;
const LONGEST_DIRECTORY = 2 ** 16;
const NEWEST_VERSION = 63;
const DEFLATED = 8;

// Flags of entries: encrypted, patched, strongly encrypted.
const NOT_PLAIN = 0x1 | 0x20 | 0x40;

const DAMAGED = "the archive is damaged";

const ARRAY_HEADER =
  /^\{'descr': '(<f8|<i8|<u2|\|u1)', 'fortran_order': (True|False), 'shape': \(([0-9]{1,12}(?:, [0-9]{1,12}){0,7}),?\), \} *\n$/;
const TYPES = { "<f8": Float64Array, "<i8": BigInt64Array, "<u2": Uint16Array, "|u1": Uint8Array };

/** @typedef {Uint8Array<ArrayBuffer>} Bytes */

/** An array of a file: little-endian numbers, last axis fastest. */
export class FileArray {
  /** @param {string} kind @param {number[]} shape @param {Bytes} bytes */
  constructor(kind, shape, bytes) {
    this.kind = kind;
    this.shape = shape;
    this.bytes = bytes;
  }

  /** The numbers as the engine holds them. @returns {any} a typed array */
  get numbers() {
    return new TYPES[/** @type {keyof typeof TYPES} */ (this.kind)](this.bytes.slice().buffer);
  }

  /** The numbers as floats; 64-bit integers beyond 2^53 are rounded. @returns {Float64Array} */
  get floats() {
    return this.kind === "<f8" ? this.numbers : Float64Array.from(this.numbers, Number);
  }

  /**
   * Return 64-bit integers as floats, exactly, or null if one is below 1 or above `most`, which is below 2^53.
   * @param {number} most
   */
  weights(most) {
    const { buffer } = this.bytes.slice();
    const [upper, lower] = [new Int32Array(buffer), new Uint32Array(buffer)];
    const found = new Float64Array(lower.length / 2);
    for (let i = 0; i < found.length; i++) {
      // The upper half alone tells whether the number is far out of range, where the sum would be rounded.
      found[i] = upper[2 * i + 1] * 2 ** 32 + lower[2 * i];
      if (!(found[i] >= 1 && found[i] <= most)) return null;
    }
    return found;
  }
}

/**
 * Return the JSON text, as bytes, and the arrays by name.
 * @param {Bytes} file
 * @returns {Promise<{text: Bytes, arrays: Map<string, FileArray>}>}
 */
export async function readArchive(file) {
  require(new Uint8Array(Uint16Array.of(1).buffer)[0], "machines that put the upper byte first cannot read files");
  const read = new LittleEndian(file);
  const found = await directory(read);
  checkEntries(found, file.length);
  const arrays = new Map();
  /** @type {Bytes} */
  let text = new Uint8Array();
  for (const entry of found) {
    const bytes = await content(read, entry);
    if (entry.name === HEADER) text = bytes;
    else arrays.set(ARRAY_NAME.exec(entry.name)?.[1], array(entry.name, bytes));
  }
  return { text, arrays };
}

/** Numbers in the bytes of a file; throws beyond their end. */
export class LittleEndian {
  /** @param {Bytes} bytes */
  constructor(bytes) {
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  }

  /** @param {number} at */
  u16(at) {
    return this.view.getUint16(at, true);
  }

  /** @param {number} at */
  u32(at) {
    return this.view.getUint32(at, true);
  }

  /** @param {number} from @param {number} to */
  text(from, to) {
    return Array.from(this.bytes.subarray(from, to), (byte) => String.fromCharCode(byte)).join("");
  }
}

/**
 * @typedef {object} Entry
 * @property {string} name
 * @property {number} flags
 * @property {number} method
 * @property {number} crc
 * @property {number} packed
 * @property {number} size
 * @property {number} offset
 */

/** @param {LittleEndian} read @returns {Promise<Entry[]>} */
async function directory(read) {
  const end = await endRecord(read);
  require(end.size <= LONGEST_DIRECTORY, DAMAGED);
  let at = end.at - end.size;
  const shift = at - end.offset; // not 0 if something was put in front of the archive
  /** @type {Entry[]} */
  const found = [];
  while (at < end.at) {
    const isEntry = at + 46 <= end.at && read.u32(at) === 0x02014b50 && read.bytes[at + 6] <= NEWEST_VERSION;
    require(isEntry, DAMAGED);
    const extra = at + 46 + read.u16(at + 28);
    const next = extra + read.u16(at + 30);
    const entry = {
      name: read.text(at + 46, Math.min(extra, end.at)),
      flags: read.u16(at + 8),
      method: read.u16(at + 10),
      crc: read.u32(at + 16),
      packed: read.u32(at + 20),
      size: read.u32(at + 24),
      offset: read.u32(at + 42),
    };
    if (next > extra) (await parts.zip64()).enlarge(entry, read, extra, Math.min(next, end.at));
    entry.offset += shift;
    found.push(entry);
    at = next + read.u16(at + 32);
  }
  return found;
}

/** Return where the directory ends, its size, and where it says that it starts. @param {LittleEndian} read */
async function endRecord(read) {
  const length = read.bytes.length;
  let at = length - 22;
  if (read.u32(at) !== 0x06054b50 || read.u16(at + 20)) {
    // A comment may follow, of at most 2^16 bytes. The last signature counts, whole or not.
    const first = Math.max(at - 2 ** 16, 0);
    for (at = length - 4; read.u32(at) !== 0x06054b50; at--) require(at > first, DAMAGED);
    require(at + 22 <= length, DAMAGED);
  }
  const isLarge = at >= 20 && read.u32(at - 20) === 0x07064b50;
  const large = isLarge ? (await parts.zip64()).largeEnd(read, at - 20) : null;
  return large ?? { at, size: read.u32(at + 12), offset: read.u32(at + 16) };
}

/** Refuse what declares more than the limits allow. @param {Entry[]} found @param {number} fileSize */
function checkEntries(found, fileSize) {
  let packed = 0;
  let deflated = 0;
  for (const { name, flags, method, size, packed: taken } of found) {
    packed += taken;
    if (method === DEFLATED) deflated += size;
    require(name === HEADER ? size <= LARGEST_HEADER : ARRAY_NAME.test(name), "the archive has an entry of unknown name, or a long header");
    const isPlain = !(flags & NOT_PLAIN) && (method === DEFLATED || (method === 0 && size === taken));
    require(isPlain, "the archive has an entry that is encrypted or neither stored nor deflated");
  }
  const names = new Set(found.map(({ name }) => name));
  require(found.length <= MOST_ENTRIES && names.size === found.length, "the archive has too many entries, or two of one name");
  require(names.has(HEADER), `the archive has no ${HEADER}`);
  // Overlapping entries could together be far larger than the file.
  require(packed <= fileSize && deflated <= Math.max(LARGEST_DEFLATED, LARGEST_GROWTH * fileSize), "the archive has entries that are too large");
}

/** @param {LittleEndian} read @param {Entry} entry @returns {Promise<Bytes>} */
async function content(read, { name, offset, method, packed, size, crc }) {
  const start = offset + 30 + read.u16(offset + 26);
  require(read.u32(offset) === 0x04034b50 && read.text(offset + 30, start) === name, `${name} is not where the archive says`);
  const data = start + read.u16(offset + 28);
  const bytes = read.bytes.subarray(data, data + packed);
  const found = method ? await inflated(bytes, size) : bytes;
  require(found.length === size && crc32(found) === crc, `${name} is damaged`);
  return found;
}

const CRC = new Uint32Array(256);
for (let n = 0; n < 256; n++) {
  let value = n;
  for (let bit = 0; bit < 8; bit++) value = (value >>> 1) ^ (value & 1 && 0xedb88320);
  CRC[n] = value;
}

/** Return the CRC-32 of zip archives. @param {Uint8Array} bytes */
export function crc32(bytes) {
  let value = -1;
  for (let i = 0; i < bytes.length; i++) value = (value >>> 8) ^ CRC[(value ^ bytes[i]) & 255];
  return ~value >>> 0;
}

/** Read the format .npy, version 1.0. @param {string} name @param {Bytes} bytes */
function array(name, bytes) {
  const read = new LittleEndian(bytes);
  const end = 10 + read.u16(8);
  const match = read.text(0, 8) === "\x93NUMPY\x01\x00" && ARRAY_HEADER.exec(read.text(10, end));
  require(match, `${name} is not an array of float64, int64 or uint16 numbers or of bytes in .npy format 1.0`);
  const shape = match[3].split(",").map(Number);
  const item = TYPES[/** @type {keyof typeof TYPES} */ (match[1])].BYTES_PER_ELEMENT;
  const count = shape.includes(0) ? 0 : shape.reduce((a, b) => a * b);
  require(count * item === bytes.length - end, `${name} does not hold as many numbers as its shape says`);
  const numbers = bytes.subarray(end);
  return new FileArray(match[1], shape, match[2] === "True" ? lastAxisFastest(numbers, shape, item) : numbers);
}

/** Reorder numbers whose first axis is fastest. @param {Bytes} bytes @param {number[]} shape @param {number} item */
function lastAxisFastest(bytes, shape, item) {
  const out = new Uint8Array(bytes.length);
  for (let n = 0; n * item < bytes.length; n++) {
    // The place of number n, when the first axis is fastest, among numbers whose last axis is.
    let [left, at] = [n, 0];
    let stride = bytes.length / item;
    for (const count of shape) {
      stride /= count;
      at += stride * (left % count);
      left = Math.floor(left / count);
    }
    out.set(bytes.subarray(n * item, n * item + item), at * item);
  }
  return out;
}
