/** What the package throws on purpose: a file or an argument that breaks a rule, or a claim without a proof. */

/** A file or an argument broke a rule; the message says which, and never holds a coordinate. */
export class InvalidInput extends Error {
  name = "InvalidInput";
}

/** A sound file of a kind that cannot be proved and drawn with integers alone. */
export class UnsupportedKind extends InvalidInput {
  name = "UnsupportedKind";
}

/** A mechanism could not be shown to keep its claim; `certificate` says what was found instead. */
export class NotCertified extends Error {
  name = "NotCertified";

  /**
   * @param {string} message
   * @param {import("./claims.js").Certificate} certificate
   */
  constructor(message, certificate) {
    super(message);
    this.certificate = certificate;
  }
}

/**
 * @param {unknown} truth what must hold
 * @param {string} message
 * @returns {asserts truth}
 */
export function require(truth, message) {
  if (!truth) throw new InvalidInput(message);
}

/**
 * @param {unknown} truth what must hold
 * @param {string} field or argument
 * @param {string} rule
 * @returns {asserts truth}
 */
export function must(truth, field, rule) {
  if (!truth) throw new InvalidInput(`\`${field}\` must be ${rule}`);
}
