// The question of a site that asks for the first time.

import { api, readSettings } from "./settings.js";
import { radii } from "./words.js";

const $ = (id) => document.getElementById(id);
const number = Number(location.search.slice(1));

async function show() {
  const question = await api.runtime.sendMessage({ ask: "question", number });
  if (!question) return window.close();
  $("site").textContent = question.site;
  $("private").hidden = !question.isPrivate;
  const { mechanism, minutes } = await readSettings();
  if (mechanism) {
    const { protection, accuracy } = radii(mechanism.facts);
    $("words").textContent =
      `It gets the report that all sites get, a new one every ${minutes} minutes at most. A report protects ` +
      `${protection} around you and is mostly off by less than ${accuracy}.`;
  } else {
    $("words").textContent = "No region is chosen in the settings yet; until then sites are told that your position is unavailable.";
  }
  for (const button of document.querySelectorAll("button")) button.addEventListener("click", decide);
  document.body.dataset.state = "ready";
}

async function decide({ target }) {
  await api.runtime.sendMessage({ ask: "decide", number, choice: target.value });
  window.close();
}

show();
