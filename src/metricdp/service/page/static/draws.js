// Real reports, drawn by the service for the place at the pin.

import { distance } from "./measure.js";
import { post } from "./api.js";
import { count, length } from "./words.js";

const MANY = 1000;
const TELLING = 20; // fewer draws say nothing about chances

const SHAPES = ": rings are their shares, discs the chances. Sent for real, so many would give the place away";

const $ = (id) => document.getElementById(id);
const calm = matchMedia("(prefers-reduced-motion: reduce)");

export class Draws {
  constructor({ state, marks, failed, changed, stale }) {
    Object.assign(this, { state, marks, failed, changed, stale });
    this.ledger = false;
    this.hint = "Every press asks the service for real reports, as a device would.";
    this.clear();
    $("draw-one").addEventListener("click", () => this.draw(1));
    $("draw-many").addEventListener("click", () => this.draw(MANY));
    $("clear").addEventListener("click", () => {
      this.clear();
      changed();
      $("draw-one").focus();
    });
  }

  configure({ ledger, device }) {
    this.ledger = ledger;
    if (device) this.hint = "Every press draws real reports, on this device.";
    this.clear();
    $("user-field").hidden = !ledger;
  }

  /** Forget all draws: they were of another place or another mechanism. */
  clear() {
    this.counts = null;
    this.total = this.refused = 0;
    this.last = this.first = null;
    this.marks.rest();
    this.say(this.hint);
    $("clear").hidden = true;
    $("adversary").hidden = true;
  }

  tally() {
    const shares = this.total >= TELLING ? this.counts.map((number) => number / this.total) : null;
    return { counts: this.counts, shares, total: this.total, drawn: this.last, first: this.first };
  }

  async draw(number) {
    const { mechanism, here } = this.state;
    if (this.waiting || !mechanism) return;
    const user = $("user").value.trim();
    if (this.ledger && !user) {
      this.say("Say whose budget it is first.");
      $("user").focus();
      return;
    }
    const body = { mechanism: mechanism.id, coordinates: "projected", points: Array(number).fill(here) };
    if (this.ledger) body.user = user;
    this.busy(true);
    try {
      const answer = await post("v1/perturb", body);
      if (answer.sha256 !== mechanism.sha256) this.stale();
      // If the pin has moved on, these draws are of another place.
      else if (mechanism === this.state.mechanism && here === this.state.here) this.take(answer, number);
    } catch (error) {
      this.failed(error);
    } finally {
      this.busy(false);
    }
  }

  take({ outputs, refused }, number) {
    const { mechanism, here } = this.state;
    this.counts ??= Array(mechanism.n_outputs).fill(0);
    const drawn = outputs.map((output) => (output ? mechanism.indexOf(output.id) : null));
    for (const index of drawn) if (index !== null) this.counts[index] += 1;
    this.first ??= drawn.find((index) => index !== null) ?? null;
    this.total += outputs.length - refused;
    this.refused += refused;
    const only = number === 1 ? drawn[0] : null;
    this.last = only;
    if (only === null) this.marks.rest();
    else this.marks.fly(only, calm.matches);
    $("clear").hidden = this.total === 0;
    const far = only === null ? "" : length(distance(here, mechanism.outputs_projected[only]), mechanism.unit);
    const words = [
      only === null ? "" : `Reported: ${mechanism.called(only)}, ${far} from you.`,
      this.total > 1 ? `${count(this.total)} draws${this.total >= TELLING ? SHAPES : ""}.` : "",
      this.refused ? `${count(this.refused)} refused: budget spent.` : "",
    ];
    this.say(words.filter(Boolean).join(" "));
    this.changed();
  }

  busy(on) {
    this.waiting = on;
    // Not `disabled`, which would take the focus away.
    for (const name of ["draw-one", "draw-many"]) $(name).setAttribute("aria-disabled", on);
  }

  say(words) {
    // Setting the same words again would have them read aloud again.
    if ($("drawn").textContent !== words) $("drawn").textContent = words;
    Object.assign($("drawn").dataset, { total: this.total, refused: this.refused, last: this.last ?? "" });
  }
}
