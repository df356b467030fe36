// The settings: a region, a mechanism that is proved before it is kept, and a schedule.

import { LARGEST_FILE, factsOf, provedMechanism } from "./mechanism.js";
import { readSettings, toBase64, writeSettings } from "./settings.js";
import { radii } from "./words.js";
import { WorldMap } from "./worldmap.js";

const $ = (id) => document.getElementById(id);
const EDGES = ["west", "south", "east", "north"];

let keptFile = null; // {name, bytes} of the file in use

const map = new WorldMap($("world"), $("land"), $("box"), (region) => {
  for (const edge of EDGES) $(edge).value = Number(region[edge].toFixed(4));
});
$("zoom-in").addEventListener("click", () => map.zoom(1 / 1.6));
$("zoom-out").addEventListener("click", () => map.zoom(1.6));

const region = () => Object.fromEntries(EDGES.map((edge) => [edge, $(edge).value === "" ? NaN : Number($(edge).value)]));
const kind = () => document.querySelector("[name=kind]:checked").value;

for (const edge of EDGES) $(edge).addEventListener("input", () => map.show(region()));
for (const button of document.querySelectorAll("[name=kind]")) button.addEventListener("change", parts);

function parts() {
  $("noise-part").hidden = kind() !== "noise";
  $("file-part").hidden = kind() !== "file";
}

$("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  document.body.dataset.state = "busy";
  $("wrong").textContent = "";
  try {
    const mechanism = kind() === "noise" ? noiseSettings() : await fileSettings();
    mechanism.facts = factsOf(await provedMechanism(mechanism));
    await writeSettings({ minutes: Number($("minutes").value), mostReports: Number($("most").value), mechanism });
    await show();
  } catch (error) {
    $("wrong").textContent = `Not saved: ${error.message}`;
    document.body.dataset.state = "wrong";
  }
});

function noiseSettings() {
  const chosen = region();
  if (EDGES.some((edge) => !Number.isFinite(chosen[edge]))) throw new RangeError("choose a region on the map, or enter its four edges.");
  if (chosen.south >= chosen.north) throw new RangeError("the region’s south must be below its north.");
  if (chosen.west === chosen.east) throw new RangeError("the region must be wider than nothing.");
  return { kind: "noise", radiusM: Number($("radius").value), region: chosen };
}

async function fileSettings() {
  const [file] = $("file").files;
  if (!file && keptFile) return { kind: "file", ...keptFile };
  if (!file) throw new RangeError("choose a mechanism file.");
  if (file.size > LARGEST_FILE) throw new RangeError(`the file must have at most ${LARGEST_FILE / 1e6} MB.`);
  return { kind: "file", name: file.name, bytes: toBase64(new Uint8Array(await file.arrayBuffer())) };
}

async function show() {
  const { mechanism, minutes, mostReports } = await readSettings();
  $("minutes").value = minutes;
  $("most").value = mostReports;
  $("saved").hidden = !mechanism;
  if (mechanism) {
    document.querySelector(`[name=kind][value=${mechanism.kind}]`).checked = true;
    if (mechanism.kind === "noise") {
      for (const edge of EDGES) $(edge).value = mechanism.region[edge];
      $("radius").value = mechanism.radiusM;
    } else {
      keptFile = { name: mechanism.name, bytes: mechanism.bytes };
      $("file-name").textContent = `In use: ${mechanism.name}`;
    }
    map.show(mechanism.facts.region);
    const words = radii(mechanism.facts);
    $("protection").textContent = words.protection;
    $("protection-words").textContent = words.protectionWords;
    $("accuracy").textContent = words.accuracy;
    $("accuracy-words").textContent = words.accuracyWords;
    $("claim").textContent = mechanism.facts.statement;
  }
  parts();
  document.body.dataset.state = mechanism ? "saved" : "empty";
}

show();
