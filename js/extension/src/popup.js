// The pop-up: the two radii, what today adds up to, and the switch of the site that is shown.

import { today } from "./schedule.js";
import { api, choiceFor, choose, readMemory, readSettings } from "./settings.js";
import { radii, sum } from "./words.js";

const $ = (id) => document.getElementById(id);

async function show() {
  const settings = await readSettings();
  const facts = settings.mechanism?.facts;
  $("unset").hidden = Boolean(facts);
  $("set").hidden = !facts;
  if (facts) await showFacts(facts, settings);
  await showSite();
  document.body.dataset.state = "ready";
}

async function showFacts(facts, { mostReports, minutes }) {
  const words = radii(facts);
  $("protection").textContent = words.protection;
  $("protection-words").textContent = words.protectionWords;
  $("accuracy").textContent = words.accuracy;
  $("accuracy-words").textContent = words.accuracyWords;
  const spent = today(await readMemory(), Date.now());
  $("sum").textContent = sum(spent);
  Object.assign($("sum").dataset, { reports: spent.reports, epsilon: spent.epsilon });
  const left = Math.max(mostReports - spent.reports, 0);
  $("left").textContent =
    left > 0
      ? `At most one every ${minutes} minutes, and ${left} more today.`
      : "Today’s budget is used up; the last report is repeated until midnight.";
  const share = Math.min(spent.reports / mostReports, 1);
  $("bar").firstElementChild.style.inlineSize = `${100 * share}%`;
  $("bar").setAttribute("aria-label", `${spent.reports} of ${mostReports} reports`);
}

/** Whose page is in front; its content script says so, where the browser lets one run. */
async function showSite() {
  const [tab] = await api.tabs.query({ active: true, lastFocusedWindow: true });
  const top = tab && (await api.tabs.sendMessage(tab.id, { ask: "site" }, { frameId: 0 }).catch(() => null));
  if (!top || top.site === "null") return;
  const isPrivate = tab.incognito;
  $("site-section").hidden = false;
  $("site").textContent = top.site;
  $("private").hidden = !isPrivate;
  const choice = await choiceFor(top.site, isPrivate);
  const warned = () => {
    $("granted").hidden = !top.granted || document.querySelector("[name=choice]:checked").value === "off";
  };
  for (const button of document.querySelectorAll("[name=choice]")) {
    button.checked = button.value === choice;
    button.addEventListener("change", async () => {
      await choose(top.site, isPrivate, button.value);
      warned();
    });
  }
  warned();
}

$("open").addEventListener("click", () => api.runtime.openOptionsPage());
show();
