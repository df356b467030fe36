// Answers pages: one draw and one budget for all sites together.

import { locate } from "./locate.js";
import { drawer } from "./mechanism.js";
import { consent } from "./consents.js";
import { MARGIN_KM, after, asPosition, isDue, nextPeriod } from "./schedule.js";
import { api, choiceFor, readMemory, readSettings, writeMemory } from "./settings.js";

const UNAVAILABLE = Object.freeze({ kind: "unavailable" });
const DENIED = Object.freeze({ kind: "denied" });

// What content scripts need comes in messages; a page that takes over its renderer shall not read settings.
api.storage.local.setAccessLevel?.({ accessLevel: "TRUSTED_CONTEXTS" });

api.runtime.onInstalled.addListener(({ reason }) => {
  if (reason === "install") api.runtime.openOptionsPage();
});

api.runtime.onMessage.addListener((message, sender, respond) => {
  if (message?.ask !== "report" || !sender.tab) return;
  answer(message, sender).then(respond, () => respond(UNAVAILABLE));
  return true;
});

async function answer({ granted }, sender) {
  const settings = await readSettings();
  const next = nextPeriod(settings, Date.now());
  // Whose page it is, from the frame on top: the person decides about the site that is in the address bar.
  const top = await api.tabs.sendMessage(sender.tab.id, { ask: "site" }, { frameId: 0 });
  if (!top || top.site === "null") return { ...DENIED, next };
  const isPrivate = sender.tab.incognito;
  let choice = await choiceFor(top.site, isPrivate);
  if (choice === "ask") choice = await consent(top.site, isPrivate);
  if (choice === "nothing" || choice === "ask") return { ...DENIED, next };
  // Others who are shown inside of a site that was switched off get reports all the same.
  if (choice === "off" && sender.origin === top.site) return { kind: "off", next };
  if (granted) warn(sender.tab.id);
  return { ...(await standing()), next };
}

// One after another, so that two sites that ask at the same moment share one draw.
let queue = Promise.resolve();

/** The answer of this period, drawn if there is none yet. */
function standing() {
  const turn = queue.then(renewed);
  queue = turn.catch(() => {});
  return turn;
}

async function renewed() {
  const settings = await readSettings();
  if (!settings.mechanism) return UNAVAILABLE;
  const memory = await readMemory();
  if (!isDue(memory, settings, Date.now())) return memory.answer ?? UNAVAILABLE;
  const place = await locate();
  if (place === null) return UNAVAILABLE;
  const mechanism = await drawer(settings.mechanism);
  const now = Date.now();
  const drawn = mechanism.isFarOutside(place, MARGIN_KM)
    ? { kind: "outside" }
    : { kind: "report", position: asPosition(mechanism.draw(place), mechanism.accuracyM, settings, now) };
  const next = after(memory, settings, now, drawn, mechanism.epsilon);
  // Charged before anybody sees it.
  await writeMemory(next);
  return drawn;
}

/** The browser itself would give this site the true position, if its page found a way round the extension. */
function warn(tabId) {
  api.action.setBadgeText({ tabId, text: "!" });
}
