// Answers the page's questions on this device, from mechanism files that it proves itself: no service, no requests.

import { load } from "./core/index.js";

/** Fetch all that the page will ever need. @returns {Promise<Device>} */
export async function openDevice() {
  const [config, roads, listed] = await Promise.all(["page/config.json", "page/roads.json", "mechanisms/list.json"].map(json));
  const proved = new Map();
  for (const one of listed) proved.set(one.id, { ...one, own: await load(await fetched(one.file, "arrayBuffer")) });
  return new Device(config, roads, proved);
}

async function fetched(path, kind) {
  const response = await fetch(path, { credentials: "omit" });
  if (!response.ok) throw new Error(`${path} is missing from this page's folder.`);
  return response[kind]();
}

const json = (path) => fetched(path, "json");

/** What the service would answer, computed here. */
class Device {
  constructor(config, roads, proved) {
    Object.assign(this, { config, roads, proved });
  }

  get(path) {
    if (path === "page/config") return this.config;
    if (path === "page/roads") return this.roads;
    if (path === "v1/mechanisms") return { mechanisms: [...this.proved.values()].map(({ detail }) => detail) };
    return described(this.proved.get(decodeURIComponent(path.slice("v1/mechanisms/".length))));
  }

  post(path, { mechanism, points }) {
    const { own, detail: { sha256 } } = this.proved.get(mechanism);
    if (path === "v1/probabilities") return { sha256, probabilities: rows(own, points) };
    return { sha256, refused: 0, outputs: points.map((point) => idOf(own.samplePoint(...point))) };
  }
}

/** The probabilities of all places from each point, in the mechanism's own coordinates. */
export const rows = (own, points) => points.map((point) => Array.from(own.probabilitiesAt(...point)));

/** What the exporter wrote, with what this device has proved in place of what it was told. */
function described({ detail, own }) {
  const { holds, claim, worstRatio, checked } = own.certificate;
  return { ...detail, certified: holds, claim, certificate: { holds, claim, worst_ratio: worstRatio, checked } };
}

/** Ids of 64 bits do not all fit into a number. */
const idOf = ({ id }) => ({ id: typeof id === "bigint" ? String(id) : id });
