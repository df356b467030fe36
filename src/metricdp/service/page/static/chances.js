// Probabilities of reports, computed in this browser where the mechanism's file allows it: then the place that somebody
// looks at goes nowhere. Otherwise the service computes them.

import { bytes, get, isLocal, post } from "./api.js";
import { load } from "./core/index.js";
import { rows } from "./device.js";

const LOOK_AGAIN_MS = 1000;

/** By the hash of a file: the mechanism of this browser, or null if the service must compute. */
const loaded = new Map();
let looked = 0;

/** Return {sha256, probabilities}; another hash than the mechanism's says that the service has another file by now. */
export async function chances(mechanism, points) {
  const question = { mechanism: mechanism.id, coordinates: "projected", points };
  if (isLocal()) return post("v1/probabilities", question);
  if (!loaded.has(mechanism.sha256)) loaded.set(mechanism.sha256, await fetchOwn(mechanism));
  const own = loaded.get(mechanism.sha256);
  if (own === null) return post("v1/probabilities", question);
  return { sha256: await served(mechanism), probabilities: rows(own, points) };
}

async function fetchOwn({ id, sha256, on_device: able }) {
  if (!able.includes("probabilities")) return null;
  const own = await load(await bytes(`v1/mechanisms/${encodeURIComponent(id)}/file`));
  // A file that has changed meanwhile is told of by the service's next answer.
  return own.sha256 === sha256 ? own : null;
}

/** The hash of the file that the service has now, looked up once a second at most. */
async function served({ id, sha256 }) {
  if (performance.now() - looked < LOOK_AGAIN_MS) return sha256;
  looked = performance.now();
  const { mechanisms } = await get("v1/mechanisms");
  return mechanisms.find((one) => one.id === id)?.sha256 ?? null;
}
