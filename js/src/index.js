/** Draw reports on the device from mechanism files of metricdp, after proving them private. */

import { InvalidInput, NotCertified, UnsupportedKind, must } from "./errors.js";
import { readFile } from "./header.js";
import { Mechanism } from "./mechanism.js";
import { SecureWords } from "./words.js";

export { noise } from "./without_file.js";
export { InvalidInput, Mechanism, NotCertified, UnsupportedKind };

export { VERSION } from "./version.js";

/**
 * Read a mechanism file and prove that the mechanism is private; throws otherwise.
 * @param {ArrayBuffer | ArrayBufferView} bytes
 * @param {{source?: import("./words.js").WordSource}} [options] `source`: random words for tests, which make draws not private
 */
export async function load(bytes, { source = new SecureWords() } = {}) {
  return new Mechanism(await readFile(ownCopy(bytes)), source, "the file");
}

/** Return a copy that nobody else can change. @param {ArrayBuffer | ArrayBufferView} bytes */
function ownCopy(bytes) {
  if (ArrayBuffer.isView(bytes)) return new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength).slice();
  const isBuffer = Object.prototype.toString.call(bytes) === "[object ArrayBuffer]";
  must(isBuffer, "bytes", "an ArrayBuffer or a typed array");
  return new Uint8Array(bytes).slice();
}
