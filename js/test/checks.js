/**
 * What every engine must do, as plain functions: `node --test` runs them, and so does a page in a browser. Each check has a
 * name and a function of the data: `vectors` (tests/vectors/vectors.json) and `read(name)`, which gives a file's bytes.
 */

import { InvalidInput, NotCertified, UnsupportedKind, load, noise } from "../src/index.js";
import { crc32 } from "../src/archive.js";
import { decodeUtf8, encodeUtf8, inflated, sha256 } from "../src/engine.js";
import { atan, cos, sesqui, sin, tan } from "../src/functions.js";
import { parseJson } from "../src/json.js";
import { LatticeNoise } from "../src/noise.js";
import { Reals, minusLog, power } from "../src/norms.js";
import { frexp, general, pow2, repr, rint } from "../src/numbers.js";
import { Dense, Sparse } from "../src/tables.js";
import { coin, integerBelow } from "../src/words.js";
import { ListedWords } from "./listed_words.js";

export const checks = [];
const check = (name, run) => checks.push({ name, run });

function equal(found, expected, what = "value") {
  const [a, b] = [found, expected].map((value) => JSON.stringify(value, (_, x) => (typeof x === "bigint" ? `${x}n` : x)));
  if (a !== b || (typeof found === "number" && !Object.is(found, expected))) throw new Error(`${what}: ${a} is not ${b}`);
}

function isTrue(truth, what) {
  if (!truth) throw new Error(what);
}

/** Return the float of Python's `float.hex`. */
function unhex(text) {
  const match = /^(-?)0x([01])\.([0-9a-f]+)p([+-]\d+)$/.exec(text);
  const size = (Number(match[2]) + parseInt(match[3], 16) / 16 ** match[3].length) * pow2(Number(match[4]));
  return match[1] ? -size : size;
}

const unhexAll = (points) => points.map((point) => point.map(unhex));

async function verdictOf(bytes) {
  try {
    return { verdict: "accepted", mechanism: await load(bytes) };
  } catch (error) {
    if (error instanceof NotCertified) return { verdict: "not certified" };
    if (error instanceof InvalidInput) return { verdict: "refused" };
    throw error;
  }
}

function sameClaim(certificate, expected, name) {
  equal(certificate.claim, expected.claim, `claim of ${name}`);
  equal(certificate.metres?.statement ?? null, expected.statement, `statement of ${name}`);
  equal(certificate.paths?.statement ?? null, expected.paths, `path claim of ${name}`);
  if (expected.kappa) equal(certificate.metres.kappa, unhex(expected.kappa), `kappa of ${name}`);
  isTrue(Math.abs(certificate.worstRatio - expected.worst_ratio) < 1e-12, `worst ratio of ${name}`);
}

// ---------------------------------------------------------------- shared vectors

check("sound files are proved with the library's claims", async ({ vectors, read }) => {
  for (const expected of vectors.files) {
    const { verdict, mechanism } = await verdictOf(await read(expected.file));
    equal(verdict, "accepted", expected.file);
    equal(mechanism.kind, expected.kind, expected.file);
    sameClaim(mechanism.certify(), expected, expected.file);
  }
});

check("places are the library's", async ({ vectors, read }) => {
  for (const expected of vectors.files) {
    const { places } = await load(await read(expected.file));
    equal(places.length, expected.places.length, expected.file);
    places.forEach((place, k) => {
      for (const [name, value] of Object.entries(expected.places[k])) {
        if (typeof value === "number" && name !== "id") isTrue(Math.abs(place[name] - value) < 1e-12, `${name} of ${expected.file}`);
        else equal(String(place[name]), String(value), `${name} of ${expected.file}`);
      }
    });
  }
});

check("the same words give the same outputs, in the plane and in degrees", async ({ vectors, read }) => {
  for (const expected of vectors.files) {
    const source = new ListedWords(expected.seed, expected.first_words);
    const mechanism = await load(await read(expected.file), { source });
    equal(mechanism.secure, false);
    const drawn = unhexAll(expected.points).map((point) => mechanism.samplePoint(...point));
    if (expected.kind === "noise") equal(drawn.map((one) => one.point), unhexAll(expected.draws), expected.file);
    else equal(drawn.map((one) => one.index), expected.draws, expected.file);
    equal(source.taken, expected.words_taken, `words taken by ${expected.file}`);
    if (!expected.lonlat) continue;
    const again = await load(await read(expected.file), { source: new ListedWords(11) });
    const reports = again.sampleMany(unhexAll(expected.lonlat));
    if (expected.kind === "noise") equal(reports.map(({ lon, lat }) => [lon, lat]), unhexAll(expected.lonlat_draws), expected.file);
    else equal(reports.map((one) => again.places.indexOf(one)), expected.lonlat_draws, expected.file);
  }
});

check("forged files have the library's verdicts", async ({ vectors, read }) => {
  for (const expected of vectors.forged) {
    const { verdict, mechanism } = await verdictOf(await read(expected.file));
    equal(verdict, expected.verdict, expected.file);
    if (mechanism) sameClaim(mechanism.certify(), expected, expected.file);
  }
});

check("probabilities of splines are the library's", async ({ vectors, read }) => {
  for (const expected of vectors.files.filter(({ kind }) => kind === "spline")) {
    const mechanism = await load(await read(expected.file));
    expected.probabilities.forEach((row, i) => {
      const found = mechanism.probabilitiesAt(...unhexAll(expected.points)[i]);
      row.forEach((z, k) => isTrue(Math.abs(found[k] - z) < 1e-13, `probability in ${expected.file}`));
    });
  }
});

// ---------------------------------------------------------------- laws

/** Return the digits, as a fraction of 2^bits, at which `holds` changes from true to false, which it does once. */
function boundary(bits, holds) {
  let low = 0n;
  let high = 1n << BigInt(bits);
  while (high - low > 1n) {
    const middle = (low + high) >> 1n;
    if (holds(middle)) low = middle;
    else high = middle;
  }
  return low;
}

/** Words of one attempt, then the given further digits, then an error. */
class OneAttempt {
  secure = false;
  constructor(attempt, further) {
    this.words = [...attempt, ...further];
  }
  next() {
    if (!this.words.length) throw new RangeError("discarded");
    const word = this.words.shift();
    this.hi = Number(word >> 32n);
    this.lo = Number(word & 0xffffffffn);
  }
}

const kept = (run) => {
  try {
    return run();
  } catch (error) {
    if (error instanceof RangeError) return null;
    throw error;
  }
};

check("noise: magnitudes and coins change where exact arithmetic says, to 96 binary digits", async ({ vectors }) => {
  for (const one of vectors.noise) {
    const p = one.p === "inf" ? Infinity : one.p;
    const lattice = new LatticeNoise(unhex(one.rate), 1, p, one.axes);
    equal([lattice.proposal.n * BigInt(one.proposal[1]), 0n], [lattice.proposal.d * BigInt(one.proposal[0]), 0n], "b");
    one.magnitudes.forEach((expected, i) => {
      const found = boundary(one.bits, (digits) => {
        const u = digits << BigInt(63 + 64 - one.bits); // 127 digits: 63 in the first word, 64 in a second if one is asked for
        const rest = Array(one.axes).fill(2n ** 64n - 2n); // other coordinates 0, and a coin that is decided by its first word
        const words = [(u >> 64n) << 1n, ...rest.slice(1), ...(lattice.hasCoin ? [0n] : [])];
        const vector = kept(() => lattice.draw(new OneAttempt(words, [u & (2n ** 64n - 1n), 0n, 0n, 0n])));
        return vector !== null && Number(vector[0]) >= i + 1;
      });
      equal(found, BigInt(expected), `magnitude ${i + 1} at rate ${one.rate}`);
    });
    for (const [vector, expected] of one.coins) {
      const ends = [1n << BigInt(one.bits), ...one.magnitudes.map(BigInt)];
      // A little below the largest u that gives the coordinate.
      const words = vector.map((n) => ((ends[n] - (ends[n] >> 30n)) >> BigInt(one.bits - 63)) << 1n);
      const found = boundary(one.bits, (digits) => {
        const u = digits << BigInt(128 - one.bits);
        return kept(() => lattice.draw(new OneAttempt([...words, u >> 64n], [u & (2n ** 64n - 1n)]))) !== null;
      });
      equal(found, BigInt(expected), `coin of ${vector} at rate ${one.rate}`);
    }
  }
});

check("coins have exactly their ratio", async () => {
  for (const [n, d] of [[1, 3], [2, 3], [5, 7], [0, 9], [9, 9], [123456789, 2 ** 40 + 1], [2 ** 50 - 1, 2 ** 50]]) {
    const found = boundary(128, (u) => kept(() => coin(new OneAttempt([u >> 64n, u & (2n ** 64n - 1n)], [0n]), n, d)) === true);
    const last = ((BigInt(n) << 128n) - 1n) / BigInt(d); // the last u of 128 digits below n/d
    equal(found, n === 0 ? 0n : last, `${n}/${d}`);
  }
});

check("whole numbers below a bound: every value has the same number of words", async () => {
  for (const bound of [3, 20, 1000, 2 ** 20 + 7, 2 ** 50 + 3 * 2 ** 40, 2 ** 53]) {
    const share = 2n ** 64n / BigInt(bound);
    for (const value of [0, 1, 2, bound - 1].map(BigInt)) {
      // The words that give `value` are consecutive: their first and last are where the product with the bound says.
      const first = ((value << 64n) + BigInt(bound) - 1n) / BigInt(bound);
      const least = 2n ** 64n % BigInt(bound);
      const start = first * BigInt(bound) - (value << 64n) >= least ? first : first + 1n;
      const answer = (word) => kept(() => integerBelow(new OneAttempt([word], []), bound));
      equal(BigInt(answer(start)), value, `first word of ${value} below ${bound}`);
      equal(BigInt(answer(start + share - 1n)), value, `last word of ${value} below ${bound}`);
      if (start > first) equal(answer(first), null, "a rejected word");
    }
  }
});

check("spline: exhaustive law of tiny tables, as fractions", async ({ vectors, read }) => {
  // Every unit of a row is counted by the words that draw it: columns times heights, in whole numbers.
  for (const name of ["spline-plane.mdp", "spline-line-cubic.mdp"]) {
    const expected = vectors.files.find(({ file }) => file === name);
    const mechanism = await load(await read(name));
    const point = unhexAll(expected.points).at(-1); // the upper corner: all coins are heads, and one row is drawn from
    const row = mechanism.probabilitiesAt(...point);
    const outputs = row.length;
    const flips = name === "spline-plane.mdp" ? 4 : 3; // axes times degree
    const share = Array(outputs).fill(0n);
    for (let column = 0; column < outputs; column++) {
      const word = ((BigInt(column) << 64n) + BigInt(outputs)) / BigInt(outputs) + 2n ** 40n;
      const at = async (height) => {
        const first = [...Array(flips).fill(0n), word, height << 24n];
        return (await load(await read(name), { source: new ListedWords(1, first) })).samplePoint(...point).index;
      };
      const [low, high] = [await at(0n), await at(2n ** 40n - 1n)];
      let cut = 2n ** 40n;
      if (low !== high) {
        let [from, to] = [0n, 2n ** 40n - 1n];
        while (to - from > 1n) {
          const middle = (from + to) / 2n;
          if ((await at(middle)) === low) from = middle;
          else to = middle;
        }
        cut = to;
      }
      share[low] += cut;
      share[high] += 2n ** 40n - cut;
    }
    equal(share.reduce((a, b) => a + b), BigInt(outputs) << 40n);
    row.forEach((z, k) => isTrue(Math.abs(z - Number(share[k]) / (outputs * 2 ** 40)) < 1e-15, `weight ${k} of ${name}`));
  }
});

/**
 * Return whether an event of chance z came up as often as it may, but for a chance of 1e-12. By Chernoff's bound, a count c
 * of n draws lies as far from n·z as it does, or farther, with a probability of at most 2 e^(−n·KL(c/n, z)).
 */
function follows(count, z, draws) {
  const part = (seen, expected) => (seen === 0 ? 0 : seen * Math.log(seen / expected));
  return part(count, z * draws) + part(draws - count, (1 - z) * draws) < Math.log(2e12);
}

check("draws follow the library's probabilities (secure randomness)", async ({ vectors, read, draws = 80000 }) => {
  for (const expected of vectors.files.filter((one) => one.probabilities)) {
    const mechanism = await load(await read(expected.file));
    equal(mechanism.secure, true);
    expected.probabilities.forEach((row, i) => {
      const point = unhexAll(expected.points)[i];
      const counts = row.map(() => 0);
      for (let n = 0; n < draws; n++) counts[mechanism.samplePoint(...point).index] += 1;
      row.forEach((z, k) => isTrue(follows(counts[k], z, draws), `law of ${expected.file} at point ${i}`));
    });
  }
});

check("planar noise has the radial law of the lattice", async ({ draws = 40000 }) => {
  const mechanism = noise({ epsilon: 2, box: [[-5, -5], [5, 5]] });
  const edges = Array.from({ length: 21 }, (_, i) => i / 8);
  const beyond = Array(edges.length).fill(0);
  for (let n = 0; n < draws; n++) {
    const [x, y] = mechanism.samplePoint(1, 2).point;
    const radius = Math.hypot(x - 1, y - 2);
    edges.forEach((edge, i) => (beyond[i] += radius >= edge));
  }
  const tail = (r) => (1 + 2 * r) * Math.exp(-2 * r); // Pr[radius > r] of planar Laplace noise at rate 2
  edges.forEach((edge, i) => isTrue(follows(beyond[i], tail(edge), draws), `radial law at ${edge}`));
});

// ---------------------------------------------------------------- parts

check("sha256 and crc32 of known texts", async () => {
  const ascii = (text) => Uint8Array.from(text, (letter) => letter.charCodeAt(0));
  const known = {
    "": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    abc: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq: "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
    ["a".repeat(1000000)]: "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0",
  };
  for (const [text, hash] of Object.entries(known)) {
    equal(await sha256(ascii(text)), hash);
    equal(await without(["crypto"], () => sha256(ascii(text))), hash, "without the engine's own");
  }
  equal(crc32(ascii("123456789")), 0xcbf43926);
});

check("JSON is strict", async () => {
  for (const text of ['{"a":1,"a":2}', "[1,]", "01", "+1", "'a'", '"\t"', '"\\x"', "[1] 2", "\ufeff{}", "[".repeat(101) + "]".repeat(101), "9".repeat(4301), "", "nul"]) {
    let refused = false;
    try {
      parseJson(text);
    } catch (error) {
      refused = error instanceof InvalidInput || error instanceof SyntaxError;
    }
    isTrue(refused, `${text.slice(0, 20)} was read`);
  }
  equal(parseJson(`"${"\\n".repeat(400_000)}"`).length, 400_000, "a long text of escapes");
  const read = parseJson('{"a": [1, 1.0, -0, 1e2, true, null, "\\u00e9\\ud83d\\ude00\\n"], "__proto__": {}}');
  equal(read.get("a"), [1n, 1, 0n, 100, true, null, "é😀\n"]);
  isTrue(read.get("__proto__") instanceof Map, "a key is only a key");
});

check("UTF-8 is strict, with the engine's decoder and without", async () => {
  const strict = async () => {
    for (const bytes of [[0xc0, 0x80], [0xe0, 0x80, 0x80], [0xed, 0xa0, 0x80], [0xf4, 0x90, 0x80, 0x80], [0xff], [0xc3], [0x80]]) {
      let refused = false;
      try {
        decodeUtf8(Uint8Array.from(bytes));
      } catch (error) {
        refused = error instanceof TypeError || error instanceof URIError;
      }
      isTrue(refused, `${bytes} was read`);
    }
    const text = "\ufeffaé€😀".repeat(3000);
    equal(decodeUtf8(encodeUtf8(text)), text);
  };
  await strict();
  await without(["TextDecoder"], strict);
});

/** Run something in an engine that lacks what it had. */
async function without(names, run) {
  const kept = names.map((name) => Object.getOwnPropertyDescriptor(globalThis, name));
  for (const name of names) Object.defineProperty(globalThis, name, { value: undefined, configurable: true, writable: true });
  try {
    return await run();
  } finally {
    names.forEach((name, i) => Object.defineProperty(globalThis, name, kept[i]));
  }
}

check("engines without their own unpacking, hashing and decoding come to the same", async ({ vectors, read }) => {
  for (const { file, verdict = "accepted" } of [...vectors.files, ...vectors.forged]) {
    const bytes = await read(file);
    const found = await without(["DecompressionStream", "TextDecoder", "crypto"], () => verdictOf(bytes));
    equal(found.verdict, verdict, file);
  }
});

check("deflated data that is odd is judged by the package's own rules", async () => {
  const packed = Uint8Array.of(0x4b, 0x4c, 0x44, 0x05, 0x00); // 16 times "a" in fixed codes
  const odd = {
    "as it should be": [packed, 16, 16],
    "bytes after the end": [Uint8Array.of(...packed, 1, 2, 3), 16, 16],
    "cut off after all that was declared": [packed.slice(0, 4), 16, 16],
    "more than was declared": [packed, 4, 4],
    "less than was declared": [packed, 20, 16],
  };
  for (const [name, [data, size, found]] of Object.entries(odd)) {
    const own = await without(["DecompressionStream"], () => inflated(data, size));
    equal(own.length, found, name);
    equal(Array.from(await inflated(data, size)), Array.from(own), name);
  }
});

check("rows whose sum is off by one unit are found, beyond 2^53 too", async () => {
  for (const [outputs, big] of [[4, false], [2048, true]]) {
    const { bits } = new Dense(outputs, new Float64Array());
    const even = Array(outputs).fill(big ? 1n << BigInt(bits) : 2 ** bits);
    const one = big ? 1n : 1;
    const table = (change) => new Dense(outputs, (big ? BigInt64Array : Float64Array).from([even[0] + change, ...even.slice(1)]));
    equal([table(one - one).fault(), table(one).fault() === null, table(-one).fault() === null], [null, false, false]);
  }
  const sparse = (extra) => new Sparse(3, 5, Float64Array.of(0, 2), Uint16Array.of(0, 2), Float64Array.of(2 ** 49, 2 ** 49 + extra));
  equal([sparse(0).fault(), sparse(1).fault() === null, sparse(-1).fault() === null], [null, false, false]);
});

check("numbers are written as Python writes them", async () => {
  const known = { 1: "1.0", 0.1: "0.1", 1e-5: "1e-05", 1e16: "1e+16", 123456789012345680: "1.2345678901234568e+17", 0.0001: "0.0001" };
  for (const [value, text] of Object.entries(known)) equal(repr(Number(value)), text);
  equal([general(1e-6), general(123456789), general(100), general(1.5), general(2 ** -20, 3)], ["1e-06", "1.23457e+08", "100", "1.5", "9.54e-07"]);
  equal([rint(0.5), rint(1.5), rint(-2.5), rint(2 ** 50 + 1)], [0, 2, -2, 2 ** 50 + 1]);
  for (let e = -1074; e < 1024; e++) isTrue(pow2(e) > 0 && (e > -1074 ? pow2(e) / 2 === pow2(e - 1) : true), `2^${e}`);
  equal(frexp(pow2(-1074)), [0.5, -1073]);
});

check("elementary functions agree with the engine's and with exact values", async () => {
  for (let x = -1.57; x < 1.57; x += 0.01) {
    const pairs = [[sin(x), Math.sin(x)], [cos(x), Math.cos(x)], [tan(x), Math.tan(x)], [atan(Math.abs(5 * x)), Math.atan(Math.abs(5 * x))]];
    for (const [own, theirs] of pairs) isTrue(Math.abs(own - theirs) <= 4e-16 * Math.max(1, Math.abs(theirs)) * 4, `at ${x}`);
  }
  equal([cos(0), sin(0), atan(0), sesqui(4), power(2, 1), power(4, 0.5), power(9, 0.5)], [1, 0, 0, 8, 2, 2, 3]);
  for (let x = 2 ** -63; x < 1; x *= 1.37) isTrue(Math.abs(minusLog(x) + Math.log(x)) < 1e-14 * (2 - Math.log(x)), `ln ${x}`);
  const reals = new Reals(200);
  const two = 2n << reals.bits;
  const [low, high] = reals.exp(reals.ln([two, two]));
  isTrue(low <= two && two <= high && high - low < 1n << 20n, "exp(ln 2)");
});

// ---------------------------------------------------------------- behaviour

check("kinds in floating point are refused with what to use instead", async ({ readOther }) => {
  for (const name of ["em-format-2.zip", "aipo-e-format-1.zip"]) {
    let message = "";
    try {
      await load(await readOther(name));
    } catch (error) {
      isTrue(error instanceof UnsupportedKind, String(error));
      message = error.message;
    }
    isTrue(message.includes("spline"), message);
  }
});

check("points as they are given: outside, wrong and without a map", async ({ read }) => {
  const city = await load(await read("spline-ground.mdp"));
  isTrue(city.places.includes(city.sample(0, 0)), "far outside counts as the nearest point of the box");
  for (const [lon, lat] of [[181, 0], [0, 91], [NaN, 0], [0, Infinity], [undefined, 0], ["x", 0]]) {
    let message = "";
    try {
      city.sample(lon, lat);
    } catch (error) {
      message = error.message;
    }
    isTrue(message.includes("degrees"), `${lon}, ${lat}: ${message}`);
  }
  let message = "";
  try {
    (await load(await read("spline-plane.mdp"))).sample(1, 2);
  } catch (error) {
    message = error.message;
  }
  isTrue(message.includes("samplePoint"), message);
});

check("bytes may be a buffer, a view or a part of one, and are copied", async ({ read }) => {
  const bytes = await read("spline-plane.mdp");
  const padded = new Uint8Array(bytes.length + 20).fill(7);
  padded.set(bytes, 10);
  const mechanism = await load(new DataView(padded.buffer, 10, bytes.length));
  padded.fill(0);
  isTrue(mechanism.certify().holds, "the caller's bytes no longer matter");
  isTrue((await load(bytes.slice().buffer)).certificate.holds, "an ArrayBuffer");
  for (const wrong of ["text", null, 3, [1, 2]]) {
    let refused = false;
    await load(wrong).catch((error) => (refused = error instanceof InvalidInput));
    isTrue(refused, `${wrong}`);
  }
});

check("every single bit flip is refused or changes nothing that counts", async ({ read }) => {
  const bytes = await read("noise-plane-p1.5.mdp");
  const { claim } = await load(bytes);
  for (let at = 0; at < bytes.length; at += 3) {
    const changed = bytes.slice();
    changed[at] ^= 1 << (at % 8);
    const { verdict, mechanism } = await verdictOf(changed);
    isTrue(verdict === "refused" || mechanism?.claim === claim, `bit at ${at}`);
  }
});

check("noise without a file is proved too", async () => {
  const rome = noise({ epsilon: 2, lonLatBox: [[12.2, 41.6], [12.8, 42.1]] });
  isTrue(rome.certificate.holds && rome.certificate.metres.epsilonPerKm === 2, "per true km");
  const { id, name, lon, lat } = rome.sample(12.49, 41.89);
  isTrue(id === null && name === null && Math.abs(lon - 12.49) < 1 && Math.abs(lat - 41.89) < 1, "a point nearby");
  for (const wrong of [{ epsilon: 0 }, { epsilon: 1 }, { epsilon: 1, p: 0.5, box: [[0], [1]] }, { epsilon: 1, box: [[1], [0]] }, { epsilon: 1, lonLatBox: [[0, 80], [10, 90]] }]) {
    let refused = false;
    try {
      noise(wrong);
    } catch (error) {
      refused = error instanceof InvalidInput;
    }
    isTrue(refused, JSON.stringify(wrong));
  }
});

check("a source of zeros is found broken", async () => {
  const mechanism = noise({ epsilon: 1, box: [[0], [1]], source: new ListedWords(1, Array(400).fill(0)) });
  let message = "";
  try {
    mechanism.samplePoint(0.5);
  } catch (error) {
    message = error.message;
  }
  isTrue(message.includes("zeros"), message);
});
