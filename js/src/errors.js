/** What the package throws on purpose: a file or an argument that breaks a rule, or a claim without a proof. */

/** A file or an argument broke a rule; the message says which, and never holds a coordinate. */
export class InvalidInput extends Error {
  /** @param {string} message */
  constructor(message) {
    super(message);
    this.name = "InvalidInput";
  }
}

/** A sound file of a kind that cannot be proved and drawn with integers alone. */
export class UnsupportedKind extends InvalidInput {
  /** @param {string} message */
  constructor(message) {
    super(message);
    this.name = "UnsupportedKind";
  }
}

/** A mechanism could not be shown to keep its claim; `certificate` says what was found instead. */
export class NotCertified extends Error {
  /**
   * @param {string} message
   * @param {import("./claims.js").Certificate} certificate
   */
  constructor(message, certificate) {
    super(message);
    this.name = "NotCertified";
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
