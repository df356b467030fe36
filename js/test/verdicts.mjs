// `node verdicts.mjs < LIST` reads the files that stdin names, one a line, and says in one line of JSON what came of each.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { load, NotCertified, InvalidInput, UnsupportedKind } from "../src/index.js";

async function verdict(path) {
  try {
    const { certificate, kind, places } = await load(readFileSync(path));
    return { verdict: "accepted", kind, places: places.length, ...certificate };
  } catch (error) {
    if (error instanceof NotCertified) return { verdict: "not certified", ...error.certificate };
    if (error instanceof UnsupportedKind) return { verdict: "unsupported", message: error.message };
    if (error instanceof InvalidInput) return { verdict: "refused", message: error.message };
    return { verdict: "crash", message: String(error.stack) };
  }
}

for await (const path of createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify(await verdict(path))}\n`);
}
