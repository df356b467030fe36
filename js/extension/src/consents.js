// Asks the person whether a site may have reports, once, in a small window.

import { api, choose } from "./settings.js";

const SIZE = { width: 460, height: 420 };

/** Sites that wait for a decision, and the number of each question. */
const pending = new Map();
let last = 0;

/** Sites whose question was closed without an answer: they are not asked about again until the browser is closed. */
const wasDismissed = async (key) => (await dismissed()).includes(key);
const dismiss = async (key) => api.storage.session.set({ dismissed: [...(await dismissed()), key] });
const dismissed = async () => (await api.storage.session.get("dismissed")).dismissed ?? [];

const keyOf = (site, isPrivate) => `${isPrivate ? "private " : ""}${site}`;

/** What the person decides: "reports", "nothing" or "off"; "ask" if they close the window. */
export async function consent(site, isPrivate) {
  const key = keyOf(site, isPrivate);
  if (await wasDismissed(key)) return "ask";
  if (!pending.has(key)) pending.set(key, question(key, site, isPrivate));
  return pending.get(key).decision;
}

function question(key, site, isPrivate) {
  let decide;
  const decision = new Promise((resolve) => {
    decide = (choice) => {
      pending.delete(key);
      resolve(choice === "ask" ? dismiss(key).then(() => choice) : choice);
    };
  });
  const asked = { number: ++last, site, isPrivate, decision, decide, windowId: null };
  // The site is not in the address, which the browser's history may keep.
  const url = api.runtime.getURL(`src/consent.html?${asked.number}`);
  api.windows.create({ type: "popup", url, ...SIZE }).then(
    ({ id }) => {
      asked.windowId = id;
    },
    () => decide("ask"),
  );
  return asked;
}

api.windows.onRemoved.addListener((id) => {
  for (const { windowId, decide } of [...pending.values()]) if (windowId === id) decide("ask");
});

const numbered = (number) => [...pending.values()].find((one) => one.number === number);

api.runtime.onMessage.addListener((message, sender, respond) => {
  // From the extension's own window only.
  if (!sender.url?.startsWith(api.runtime.getURL(""))) return;
  const question = numbered(message?.number);
  if (message?.ask === "question") {
    respond(question ? { site: question.site, isPrivate: question.isPrivate } : null);
  } else if (message?.ask === "decide") {
    if (!question) return respond(false);
    choose(question.site, question.isPrivate, message.choice).then(() => {
      question.decide(message.choice);
      respond(true);
    });
    return true;
  }
});
