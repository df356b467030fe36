/** What archives have where 32 bits are too few: an extra field of an entry, a larger record at the end. */

import { require } from "./errors.js";

/**
 * @typedef {import("./archive.js").LittleEndian} LittleEndian
 * @typedef {import("./archive.js").Entry} Entry
 */

const DAMAGED = "the archive is damaged";

// An extra field with another name of the entry, which some readers believe and others not.
const OTHER_NAME = 0x7075;

/** @param {LittleEndian} read @param {number} at */
const u64 = (read, at) => Number(read.view.getBigUint64(at, true));

/**
 * Take sizes from the extra field of an entry, and refuse a field that is damaged.
 * @param {Entry} entry
 * @param {LittleEndian} read
 * @param {number} from where the field starts
 * @param {number} to where it ends
 */
export function enlarge(entry, read, from, to) {
  for (let at = from; at + 4 <= to; ) {
    const end = at + 4 + read.u16(at + 2);
    require(end <= to, DAMAGED);
    require(read.u16(at) !== OTHER_NAME, "the archive has an entry of two names");
    if (read.u16(at) === 1) {
      let field = at + 4;
      for (const name of /** @type {const} */ (["size", "packed", "offset"])) {
        if (entry[name] !== 0xffffffff) continue;
        require(field + 8 <= end, DAMAGED);
        entry[name] = u64(read, field);
        field += 8;
      }
    }
    at = end;
  }
}

/** Return the end record that a locator points to, null if there is none. @param {LittleEndian} read @param {number} locator */
export function largeEnd(read, locator) {
  require(read.u32(locator + 4) === 0 && read.u32(locator + 16) <= 1, "the archive is one of several parts");
  const at = locator - 56;
  require(at >= 0, DAMAGED);
  return read.u32(at) === 0x06064b50 ? { at, size: u64(read, at + 40), offset: u64(read, at + 48) } : null;
}
