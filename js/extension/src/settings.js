// What the extension stores, and nothing else: settings, what sites were allowed, the day's sum and the last answer.

import { NOTHING } from "./schedule.js";

export const api = globalThis.browser ?? globalThis.chrome;

export const DEFAULTS = Object.freeze({
  minutes: 10,
  mostReports: 48,
  // {kind: "noise", radiusM, region: {west, south, east, north}, facts}, or {kind: "file", name, bytes, facts} with the
  // bytes of a mechanism file in base 64
  mechanism: null,
});

/** What a site may have. Without a choice the person is asked. */
export const CHOICES = Object.freeze(["ask", "reports", "nothing", "off"]);

export async function readSettings() {
  const { settings } = await api.storage.local.get("settings");
  return { ...DEFAULTS, ...settings };
}

/** Keep settings. A report of another mechanism or region is not repeated under a new one. */
export async function writeSettings(settings) {
  const before = await readSettings();
  const same = JSON.stringify(before.mechanism) === JSON.stringify(settings.mechanism);
  const memory = await readMemory();
  await api.storage.local.set({ settings, ...(same ? {} : { memory: { ...memory, answer: null } }) });
}

export async function readMemory() {
  const { memory } = await api.storage.local.get("memory");
  return memory ?? NOTHING;
}

export const writeMemory = (memory) => api.storage.local.set({ memory });

// Choices of private windows stay in memory and end with the browser; the others are settings.
const drawer = (isPrivate) => (isPrivate ? api.storage.session : api.storage.local);

export async function choiceFor(site, isPrivate) {
  const { sites = {} } = await drawer(isPrivate).get("sites");
  return Object.hasOwn(sites, site) ? sites[site] : "ask";
}

export async function choose(site, isPrivate, choice) {
  if (!CHOICES.includes(choice)) throw new RangeError(`\`choice\` must be one of ${CHOICES.join(", ")}.`);
  const { sites = {} } = await drawer(isPrivate).get("sites");
  const rest = Object.entries(sites).filter(([name]) => name !== site);
  await drawer(isPrivate).set({ sites: Object.fromEntries(choice === "ask" ? rest : [...rest, [site, choice]]) });
}

export const toBase64 = (bytes) => btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));

export const fromBase64 = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
