// What somebody believes who sees the draws: Bayes' rule on a lattice of places, all of them equally likely before.

import { chances } from "./chances.js";
import { distance } from "./measure.js";
import { count, length } from "./words.js";

const SIDE = 24; // places along each axis
const STEPS = 60; // of the search for the best guess

const $ = (id) => document.getElementById(id);

export class Adversary {
  constructor({ state, changed }) {
    Object.assign(this, { state, changed, lattice: null, asked: null, all: true, seen: null });
    for (const [name, all] of [["belief-one", false], ["belief-all", true]]) {
      $(name).addEventListener("click", () => {
        this.all = all;
        changed();
      });
    }
  }

  /** Take the draws into account: `counts` of all of them, and the output of the `first`. Asks for the lattice once. */
  take({ counts, total, first }) {
    const { mechanism } = this.state;
    const fits = mechanism?.n_axes === 2 && total > 0;
    if (fits && this.asked !== mechanism) this.ask(mechanism);
    this.seen = fits && this.lattice?.mechanism === mechanism ? this.believed(counts, total, first) : null;
    this.tell();
  }

  async ask(mechanism) {
    this.asked = mechanism;
    const places = latticeOf(mechanism.bounds);
    try {
      const answer = await chances(mechanism, places);
      if (answer.sha256 !== mechanism.sha256) return;
      this.lattice = { mechanism, places, logs: answer.probabilities.map((row) => row.map((chance) => Math.log(chance))) };
    } catch {
      return; // the rest of the page does without it, and says itself what is wrong with the service
    }
    this.changed();
  }

  believed(counts, total, first) {
    const { places, logs } = this.lattice;
    const one = counts.map((_, id) => (id === first ? 1 : 0));
    const guesses = [one, counts].map((said) => guess(places, posterior(logs, said)));
    const shown = this.all ? counts : one;
    return { total, guesses, beliefs: posterior(logs, shown) };
  }

  tell() {
    $("adversary").hidden = !this.seen;
    if (!this.seen) return;
    const { total, guesses } = this.seen;
    const { here, mechanism } = this.state;
    const [after, at] = guesses.map((place) => length(distance(here, place), mechanism.unit));
    const rest = total > 1 ? ` After all ${count(total)}, their guess is ${at} from you.` : "";
    $("adversary-words").textContent =
      `Who knows the mechanism and sees the first report guesses a place ${after} from you.${rest}`;
    $("belief-all").textContent = `All ${count(total)}`;
    $("belief-choice").hidden = total < 2;
    $("belief-one").setAttribute("aria-pressed", !this.all);
    $("belief-all").setAttribute("aria-pressed", this.all);
    Object.assign($("adversary").dataset, { reports: total, first: guesses[0].join(), all: guesses[1].join() });
  }

  /** The lattice's cells with how strongly each is believed in, the strongest 1; for the map. */
  cells() {
    if (!this.seen) return null;
    const { places, mechanism } = this.lattice;
    const [low, high] = mechanism.bounds;
    const half = low.map((least, axis) => (high[axis] - least) / SIDE / 2);
    const most = Math.max(...this.seen.beliefs);
    return { places, half, shades: this.seen.beliefs.map((belief) => belief / most) };
  }
}

function latticeOf([low, high]) {
  const at = (axis, index) => low[axis] + ((high[axis] - low[axis]) * (index + 0.5)) / SIDE;
  return Array.from({ length: SIDE * SIDE }, (_, cell) => [at(0, Math.floor(cell / SIDE)), at(1, cell % SIDE)]);
}

/** Pr[place | reports], from the logarithms of Pr[output | place] and how often each output was reported. */
export function posterior(logs, counts) {
  const seen = counts.map((number, id) => [number, id]).filter(([number]) => number > 0);
  const sums = logs.map((row) => seen.reduce((sum, [number, id]) => sum + number * row[id], 0));
  const most = Math.max(...sums);
  const weights = sums.map((sum) => Math.exp(sum - most));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  return weights.map((weight) => weight / total);
}

/** The point with the least expected distance: Weiszfeld's iteration, from the mean. */
export function guess(places, beliefs) {
  const mean = (weights) => {
    const total = weights.reduce((sum, weight) => sum + weight, 0);
    return [0, 1].map((axis) => places.reduce((sum, place, at) => sum + weights[at] * place[axis], 0) / total);
  };
  let here = mean(beliefs);
  for (let step = 0; step < STEPS; step++) {
    const weights = places.map((place, at) => beliefs[at] / Math.max(distance(place, here), 1e-9));
    here = mean(weights);
  }
  return here;
}
