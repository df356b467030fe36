/** Zip archives of one JSON text and plain arrays, read without trusting them: sizes are checked before memory is taken. */

import { require } from "./errors.js";
import { crc32 } from "./hashes.js";
import { inflate } from "./inflate.js";

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
const STORED = 0;
const DEFLATED = 8;

// Flags of entries: encrypted, patched, strongly encrypted.
const NOT_PLAIN = 0x1 | 0x20 | 0x40;

const MAGIC = "\x93NUMPY\x01\x00";
const ARRAY_HEADER =
  /^\{'descr': '(<f8|<i8|<u2|\|u1)', 'fortran_order': (True|False), 'shape': \(([0-9]{1,12}(?:, [0-9]{1,12}){0,7}),?\), \} *\n$/;
const ITEM_BYTES = { "<f8": 8, "<i8": 8, "<u2": 2, "|u1": 1 };

/** @typedef {keyof typeof ITEM_BYTES} NumberKind */

/** An array of a file: little-endian numbers, last axis fastest. */
export class FileArray {
  /** @param {NumberKind} kind @param {number[]} shape @param {Uint8Array} bytes */
  constructor(kind, shape, bytes) {
    this.kind = kind;
    this.shape = shape;
    this.bytes = bytes;
    this.size = bytes.length / ITEM_BYTES[kind];
  }

  /** Return the numbers as floats; 64-bit integers beyond 2^53 are rounded. */
  floats() {
    const view = viewOf(this.bytes);
    const found = new Float64Array(this.size);
    for (let i = 0; i < found.length; i++) {
      if (this.kind === "<f8") found[i] = view.getFloat64(8 * i, true);
      else if (this.kind === "<i8") found[i] = Number(view.getBigInt64(8 * i, true));
      else if (this.kind === "<u2") found[i] = view.getUint16(2 * i, true);
      else found[i] = this.bytes[i];
    }
    return found;
  }

  /**
   * Return 64-bit integers as floats, exactly, or null if one is below `least` or above `most`, which is below 2^53.
   * @param {number} least
   * @param {number} most
   */
  smallIntegers(least, most) {
    const view = viewOf(this.bytes);
    const found = new Float64Array(this.size);
    for (let i = 0; i < found.length; i++) {
      // The upper half alone tells whether the number is far out of range, where the sum would be rounded.
      found[i] = view.getInt32(8 * i + 4, true) * 2 ** 32 + view.getUint32(8 * i, true);
      if (!(found[i] >= least && found[i] <= most)) return null;
    }
    return found;
  }

  /** Return 64-bit integers as big ones. */
  integers() {
    const view = viewOf(this.bytes);
    const found = new BigInt64Array(this.size);
    for (let i = 0; i < found.length; i++) found[i] = view.getBigInt64(8 * i, true);
    return found;
  }
}

/** @param {Uint8Array} bytes */
const viewOf = (bytes) => new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);

/**
 * Return the JSON text, as bytes, and the arrays by name.
 * @param {Uint8Array} file
 * @returns {{text: Uint8Array, arrays: Map<string, FileArray>}}
 */
export function readArchive(file) {
  const entries = checkedEntries(directory(file), file.length);
  const text = content(file, /** @type {Entry} */ (entries.get(HEADER)));
  entries.delete(HEADER);
  const arrays = new Map();
  for (const [name, entry] of entries) {
    const match = ARRAY_NAME.exec(name);
    require(match, "the archive has an entry of unknown name");
    arrays.set(match[1], array(name, content(file, entry)));
  }
  return { text, arrays };
}

/**
 * @typedef {object} Entry
 * @property {string} name before a zero byte, if there is one
 * @property {string} fullName
 * @property {number} flags
 * @property {number} method
 * @property {number} crc
 * @property {number} packed
 * @property {number} size
 * @property {number} offset
 */

/** @param {Uint8Array} file @returns {Entry[]} */
function directory(file) {
  const view = viewOf(file);
  const end = endRecord(file, view);
  require(end.size <= LONGEST_DIRECTORY, "the archive's directory is too long");
  const start = end.at - end.size;
  require(start >= 0, "the archive's directory is not where it should be");
  const shift = start - end.offset; // not 0 if something was put in front of the archive
  const stop = Math.min(start + end.size, file.length);
  /** @type {Entry[]} */
  const found = [];
  for (let at = start; at < start + end.size; ) {
    require(at + 46 <= stop && view.getUint32(at, true) === 0x02014b50, "the archive's directory is damaged");
    require(file[at + 6] <= NEWEST_VERSION, "the archive is of an unknown version");
    const lengths = [28, 30, 32].map((field) => view.getUint16(at + field, true));
    const entry = {
      ...names(file.subarray(at + 46, Math.min(at + 46 + lengths[0], stop))),
      flags: view.getUint16(at + 8, true),
      method: view.getUint16(at + 10, true),
      crc: view.getUint32(at + 16, true),
      packed: view.getUint32(at + 20, true),
      size: view.getUint32(at + 24, true),
      offset: view.getUint32(at + 42, true),
    };
    const extra = at + 46 + lengths[0];
    enlarge(entry, viewOf(file.subarray(Math.min(extra, stop), Math.min(extra + lengths[1], stop))));
    entry.offset += shift;
    found.push(entry);
    at = extra + lengths[1] + lengths[2];
  }
  return found;
}

/**
 * Return where the directory ends, its size, and where it says that it starts.
 * @param {Uint8Array} file
 * @param {DataView} view
 */
function endRecord(file, view) {
  let at = file.length - 22;
  const isEnd = () => view.getUint32(at, true) === 0x06054b50;
  require(at >= 0, "it is no zip archive");
  if (!isEnd() || view.getUint16(at + 20, true) !== 0) {
    // A comment may follow, of at most 2^16 bytes. The last signature counts, whole or not.
    const first = Math.max(at - 2 ** 16, 0);
    at = file.length - 4;
    while (at >= first && !isEnd()) at -= 1;
    require(at >= first && at + 22 <= file.length, "it is no zip archive");
  }
  const locator = at - 20;
  if (locator >= 0 && view.getUint32(locator, true) === 0x07064b50) {
    const alone = view.getUint32(locator + 4, true) === 0 && view.getUint32(locator + 16, true) <= 1;
    require(alone, "the archive is one of several parts");
    const large = locator - 56;
    require(large >= 0, "the archive's directory is damaged");
    if (view.getUint32(large, true) === 0x06064b50) {
      return { at: large, size: large64(view, large + 40), offset: large64(view, large + 48) };
    }
  }
  return { at, size: view.getUint32(at + 12, true), offset: view.getUint32(at + 16, true) };
}

/** @param {DataView} view @param {number} at */
const large64 = (view, at) => Number(view.getBigUint64(at, true));

/** @param {Uint8Array} bytes */
function names(bytes) {
  require(bytes.every((byte) => byte < 128), "the archive has an entry of unknown name");
  const fullName = latin1(bytes);
  return { fullName, name: fullName.split("\0", 1)[0] };
}

/** Take sizes from the extra field where 32 bits are too few. @param {Entry} entry @param {DataView} extra */
function enlarge(entry, extra) {
  for (let at = 0; at + 4 <= extra.byteLength; ) {
    const end = at + 4 + extra.getUint16(at + 2, true);
    require(end <= extra.byteLength, "the archive's directory is damaged");
    if (extra.getUint16(at, true) === 1) {
      let field = at + 4;
      for (const name of /** @type {const} */ (["size", "packed", "offset"])) {
        if (entry[name] !== 0xffffffff) continue;
        require(field + 8 <= end, "the archive's directory is damaged");
        entry[name] = large64(extra, field);
        field += 8;
      }
    }
    at = end;
  }
}

/**
 * Return the entries by name if what they declare is within the limits.
 * @param {Entry[]} found
 * @param {number} fileSize
 * @returns {Map<string, Entry>}
 */
function checkedEntries(found, fileSize) {
  const entries = new Map(found.map((entry) => [entry.name, entry]));
  /** @param {(entry: Entry) => number} field */
  const sum = (field) => found.reduce((total, entry) => total + field(entry), 0);
  const allowed = Math.max(LARGEST_DEFLATED, LARGEST_GROWTH * fileSize);
  const unique = found.length <= MOST_ENTRIES && entries.size === found.length;
  require(unique, "the archive has too many entries, or two of one name");
  require(entries.has(HEADER), `the archive has no ${HEADER}`);
  // Overlapping entries could together be far larger than the file.
  require(sum((entry) => entry.packed) <= fileSize, "the archive has entries larger than the file");
  require(found.every(isPlain), "the archive has an entry that is encrypted or neither stored nor deflated");
  const deflated = sum((entry) => (entry.method === DEFLATED ? entry.size : 0));
  require(deflated <= allowed, `the archive has more than ${allowed} deflated bytes`);
  require(/** @type {Entry} */ (entries.get(HEADER)).size <= LARGEST_HEADER, `the archive has a header of more than ${LARGEST_HEADER} bytes`);
  return entries;
}

/** @param {Entry} entry */
function isPlain({ flags, method, size, packed }) {
  return !(flags & NOT_PLAIN) && (method === DEFLATED || (method === STORED && size === packed));
}

/** @param {Uint8Array} file @param {Entry} entry */
function content(file, entry) {
  const view = viewOf(file);
  const { offset, fullName, size } = entry;
  const inside = offset >= 0 && offset + 30 <= file.length && view.getUint32(offset, true) === 0x04034b50;
  require(inside, `${entry.name} is not where the archive says`);
  const start = offset + 30 + view.getUint16(offset + 26, true);
  const name = file.subarray(offset + 30, start);
  require(
    name.length === fullName.length && name.every((byte, i) => byte === fullName.charCodeAt(i)),
    `${entry.name} has another name where it starts`,
  );
  const data = start + view.getUint16(offset + 28, true);
  const packed = file.subarray(data, data + entry.packed);
  const found = entry.method === STORED ? packed : inflate(packed, Math.max(size + 1, 4096)).subarray(0, size);
  require(found.length === size, `${entry.name} is not as long as declared`);
  require(crc32(found) === entry.crc, `${entry.name} is damaged`);
  return found;
}

/** @param {string} name @param {Uint8Array} bytes */
function array(name, bytes) {
  const end = 10 + bytes[8] + 256 * bytes[9];
  const isArray = bytes.length >= 10 && String.fromCharCode(...bytes.subarray(0, 8)) === MAGIC;
  const match = isArray && ARRAY_HEADER.exec(latin1(bytes.subarray(10, end)));
  require(match, `${name} is not an array of float64, int64 or uint16 numbers or of bytes in .npy format 1.0`);
  const kind = /** @type {NumberKind} */ (match[1]);
  const shape = match[3].split(",").map(Number);
  const item = ITEM_BYTES[kind];
  const count = shape.includes(0) ? 0 : shape.reduce((a, b) => a * b, 1);
  require(count * item === bytes.length - end, `${name} does not hold as many numbers as its shape says`);
  const numbers = bytes.subarray(end);
  return new FileArray(kind, shape, match[2] === "True" ? lastAxisFastest(numbers, shape, item) : numbers);
}

/** @param {Uint8Array} bytes at most 65,535 of them */
function latin1(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += 4096) text += String.fromCharCode(...bytes.subarray(at, at + 4096));
  return text;
}

/** Reorder numbers whose first axis is fastest. @param {Uint8Array} bytes @param {number[]} shape @param {number} item */
function lastAxisFastest(bytes, shape, item) {
  const out = new Uint8Array(bytes.length);
  const place = shape.map(() => 0);
  for (let at = 0; at < bytes.length; at += item) {
    let from = 0;
    for (let axis = shape.length - 1; axis >= 0; axis--) from = from * shape[axis] + place[axis];
    out.set(bytes.subarray(from * item, from * item + item), at);
    for (let axis = shape.length - 1; axis >= 0 && ++place[axis] === shape[axis]; axis--) place[axis] = 0;
  }
  return out;
}

