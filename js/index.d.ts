/** Draw reports on the device from mechanism files of metricdp, after proving them private. */

/** A report or a place: `lon` and `lat` in degrees. `id` is the user's own, or the index; integers beyond ±2^53 are bigints. */
export interface Report {
  readonly id: string | number | bigint | null;
  readonly name: string | null;
  readonly lon: number;
  readonly lat: number;
}

/** A place: in degrees where the mechanism has a map, otherwise with its coordinates `x`, `y`, `z` (or `x0`, `x1`, …). */
export type Place = {
  readonly id: string | number | bigint;
  readonly name: string | null;
} & Readonly<Record<string, string | number | bigint | null>>;

/** A report in the mechanism's own coordinates; `index`, `id` and `name` are null for noise. */
export interface PointReport {
  readonly index: number | null;
  readonly id: string | number | bigint | null;
  readonly name: string | null;
  readonly point: number[];
}

/** The claim on the ground: at most e^{E (d + r)} between two points as given, d in true km. */
export interface Metres {
  readonly epsilonPerKm: number;
  readonly roundingMm: number;
  readonly kappa: number;
  readonly marginKm: number;
  readonly statement: string;
}

/** The claim where ε varies over the box: at most e^{∫ε ds} along every path inside it. */
export interface Paths {
  readonly least: number;
  readonly most: number;
  readonly radiusLeast: number;
  readonly radiusMost: number;
  readonly cells: readonly number[];
  readonly statement: string;
}

/** What was proved, or what was found instead of a proof. */
export interface Certificate {
  readonly holds: boolean;
  readonly epsilon: number;
  readonly p: number;
  readonly claim: string;
  readonly worstRatio: number;
  readonly worstWhere: object;
  readonly checked: number;
  readonly metres: Metres | null;
  readonly paths: Paths | null;
}

/** Uniform 64-bit words: `next` puts one into `hi` and `lo`, 32 bits each. Draws are private only if `secure` is true and true. */
export interface WordSource {
  readonly secure: boolean;
  readonly hi: number;
  readonly lo: number;
  next(): void;
}

/** A mechanism that was proved private. */
export class Mechanism {
  private constructor();
  readonly kind: "spline" | "lattice-laplace" | "noise";
  readonly method: string;
  readonly format: 1 | 2 | 3;
  readonly library: string;
  readonly sha256: string | null;
  readonly report: Readonly<Record<string, unknown>>;
  /** ε per true km where `distance` is "ground", per unit of the coordinates otherwise; the largest where it varies. */
  readonly epsilon: number;
  readonly p: number;
  readonly distance: "ground" | "plane";
  /** ε of each cell of a grid, last axis fastest; null where it is the same everywhere. */
  readonly epsilonMap: {
    readonly breakpoints: readonly (readonly number[])[];
    readonly values: readonly number[];
    readonly shape: readonly number[];
  } | null;
  /** Lower and upper corner in the mechanism's own coordinates; points outside are taken to the nearest point of the box. */
  readonly box: readonly (readonly number[])[];
  /** The centre of the map in degrees; null where there is none. */
  readonly center: { readonly lon: number; readonly lat: number } | null;
  /** What may be reported, in the order of the file; empty for noise. */
  readonly places: readonly Place[];
  /** What `load` proved. */
  readonly certificate: Certificate;
  /** The claim in words. */
  readonly claim: string;
  /** Whether draws come from the engine's cryptographic generator. */
  readonly secure: boolean;
  /** Prove the claim once more, from the numbers that are drawn from. */
  certify(): Certificate;
  /** Draw a report for a point in degrees. */
  sample(lon: number, lat: number): Report;
  /** Draw a report for every pair of longitude and latitude, in order. */
  sampleMany(points: Iterable<ArrayLike<number>>): Report[];
  /** Draw a report for a point in the mechanism's own coordinates. */
  samplePoint(...point: number[]): PointReport;
  /** The probability of each place from a point in degrees; splines only. */
  probabilities(lon: number, lat: number): Float64Array;
  /** The probability of each place from a point in the mechanism's own coordinates; splines only. */
  probabilitiesAt(...point: number[]): Float64Array;
}

/** Read a mechanism file and prove that the mechanism is private; throws `NotCertified` or `InvalidInput` otherwise. */
export function load(bytes: ArrayBuffer | ArrayBufferView, options?: { source?: WordSource }): Promise<Mechanism>;

/** Exact lattice noise without places: coordinates in, coordinates out. */
export function noise(options: {
  /** per true km with `lonLatBox`, per unit of the coordinates with `box` */
  epsilon: number;
  p?: number;
  /** [[west, south], [east, north]] in degrees */
  lonLatBox?: readonly [readonly number[], readonly number[]];
  /** lower and upper corner, for a mechanism without a map */
  box?: readonly [readonly number[], readonly number[]];
  source?: WordSource;
}): Mechanism;

/** A file or an argument broke a rule. */
export class InvalidInput extends Error {}

/** A file of a kind that draws from rows in floating point, which are not the same on every engine. */
export class UnsupportedKind extends InvalidInput {}

/** A mechanism could not be shown to keep its claim. */
export class NotCertified extends Error {
  readonly certificate: Certificate;
}

/** The version of the package. */
export const VERSION: string;
