/** What engines bring along: unpacking, SHA-256, UTF-8. Where one is missing, or in doubt, the package's own takes its place. */

import { parts } from "./parts.js";

/**
 * Return what deflated data unpacks to, up to `size` bytes; the caller checks how many there are.
 *
 * The engine's answer counts if it is of exactly that size. Whatever else happens, to damaged data or to data that an engine
 * takes otherwise than others, is decided by the package's own rules, which are those of Python.
 * @param {Uint8Array<ArrayBuffer>} data
 * @param {number} size
 */
export async function inflated(data, size) {
  try {
    const { readable, writable } = new DecompressionStream("deflate-raw");
    const writer = writable.getWriter();
    for (const step of [writer.write(data), writer.close()]) step.catch(() => {});
    const reader = readable.getReader();
    const found = new Uint8Array(size);
    let at = 0;
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      found.set(part.value, at); // throws where there is more than was declared
      at += part.value.length;
    }
    if (at === size) return found;
  } catch {
    // Decided below.
  }
  const { inflate } = await parts.inflate();
  // zipfile reads 4,096 bytes at a time, so a fault just after the declared size counts.
  return inflate(data, Math.max(size + 1, 4096)).subarray(0, size);
}

/** Return SHA-256 as hexadecimal digits. @param {Uint8Array<ArrayBuffer>} bytes */
export async function sha256(bytes) {
  // Missing outside secure contexts and on some phones.
  const { subtle } = globalThis.crypto ?? {};
  const digest = subtle ? new Uint8Array(await subtle.digest("SHA-256", bytes)) : (await parts.sha256()).sha256(bytes);
  return Array.from(digest, hex).join("");
}

/** @param {number} byte */
const hex = (byte) => byte.toString(16).padStart(2, "0");

/** Return the text of UTF-8 bytes; throws where they are anything else. @param {Uint8Array} bytes */
export function decodeUtf8(bytes) {
  // Every engine has the second way, which is slow; both refuse surrogates and longer forms than needed.
  if (globalThis.TextDecoder) return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  return decodeURIComponent(Array.from(bytes, (byte) => `%${hex(byte)}`).join(""));
}

/** Return the bytes of a text that was decoded from UTF-8. @param {string} text */
export const encodeUtf8 = (text) => latin1Bytes(unescape(encodeURIComponent(text)));

/** @param {string} text of characters below 256 */
const latin1Bytes = (text) => Uint8Array.from(text, (letter) => letter.charCodeAt(0));
