// The outputs as a table: exact probabilities, draws beside them, and the ratios of two places.

import { isolated } from "./places.js";
import { count, exactPercent, length, percent, times } from "./words.js";

const MOST_ROWS = 200;

const HEADS = {
  one: ["Place", "From you", "Chance", ""],
  drawn: ["Place", "From you", "Chance", "", "Drawn"],
  two: ["Place", "From A", "From B", "Ratio", "Likelier"],
};

export class Reports {
  /** `react.hover` is told which output somebody looks at, or null. */
  constructor({ table, head, caption, rest }, react) {
    Object.assign(this, { table, head, caption, rest, react });
    this.body = table.tBodies[0];
    this.rows = new Map();
    this.kind = "";
    table.addEventListener("pointerover", (event) => react.hover(idOf(event.target)));
    table.addEventListener("pointerleave", () => react.hover(null));
    table.addEventListener("focusin", (event) => react.hover(idOf(event.target)));
    table.addEventListener("focusout", () => react.hover(null));
    table.addEventListener("keydown", (event) => this.walk(event));
  }

  /** Show `scene`: probabilities of one place, or of two with their comparison. */
  draw(scene) {
    const { probabilities, there, versus, total, order } = scene;
    const kind = versus ? "two" : total > 0 ? "drawn" : "one";
    if (kind !== this.kind) this.begin(kind);
    this.table.dataset.mechanism = scene.mechanism.id;
    this.table.dataset.named = scene.mechanism.named;
    this.place("", scene.here);
    this.place("There", there);
    this.caption.textContent = versus
      ? "Probability of each report from place A and from place B, and how many times likelier it is from one of them"
      : "Probability of each report from your place";
    const shown = order.slice(0, MOST_ROWS);
    const top = probabilities[order[0]] || 1;
    for (const id of [...this.rows.keys()]) if (!shown.includes(id)) this.drop(id);
    shown.forEach((id, rank) => {
      const row = this.rows.get(id) ?? this.make(id);
      this.fill(row, id, scene, top);
      if (this.body.children[rank] !== row) this.body.insertBefore(row, this.body.children[rank] ?? null);
    });
    this.rove();
    this.mark(scene.hot, scene.drawn);
    const others = order.slice(MOST_ROWS);
    this.rest.hidden = others.length === 0;
    const share = others.reduce((sum, id) => sum + probabilities[id], 0);
    this.rest.textContent = `and ${count(others.length)} more, together ${percent(share)}`;
  }

  /** Mark the output somebody looks at and the one drawn last. */
  mark(hot, drawn) {
    for (const [id, row] of this.rows) {
      row.classList.toggle("hot", id === hot);
      row.classList.toggle("last", id === drawn);
    }
  }

  place(name, point) {
    point?.forEach((value, axis) => {
      this.table.dataset[`${"xyz"[axis]}${name}`] = value;
    });
    if (!point) for (const axis of "xyz") delete this.table.dataset[axis + name];
  }

  begin(kind) {
    this.kind = kind;
    this.table.dataset.kind = kind;
    this.rows.clear();
    this.body.replaceChildren();
    this.head.replaceChildren(
      ...HEADS[kind].map((text, column) => {
        const cell = document.createElement(text ? "th" : "td");
        if (text) cell.scope = "col";
        cell.textContent = text;
        cell.className = `c${column}`;
        return cell;
      }),
    );
  }

  make(id) {
    const row = document.createElement("tr");
    row.dataset.outputId = id;
    HEADS[this.kind].forEach((_, column) => {
      const cell = document.createElement(column === 0 ? "th" : "td");
      if (column === 0) cell.scope = "row";
      cell.className = `c${column}`;
      row.append(cell);
    });
    row.cells[0].dir = "auto";
    if (this.kind !== "two") row.cells[3].append(bar("chance"), ...(this.kind === "drawn" ? [bar("share")] : []));
    this.rows.set(id, row);
    return row;
  }

  drop(id) {
    this.rows.get(id).remove();
    this.rows.delete(id);
  }

  fill(row, id, scene, top) {
    const { probabilities, versus, counts, shares, distances, unit } = scene;
    const chance = probabilities[id];
    row.dataset.probability = chance;
    const label = scene.mechanism.labels[id];
    row.cells[0].textContent = label;
    row.title = `${scene.mechanism.named ? isolated(label) : `Place ${label}`}: ${exactPercent(chance)}`;
    if (versus) {
      const other = scene.probabilitiesThere[id];
      const ratio = versus.ratios[id];
      row.dataset.probabilityThere = other;
      row.dataset.ratio = ratio;
      row.title += ` from A, ${exactPercent(other)} from B`;
      row.cells[1].textContent = percent(chance);
      row.cells[2].textContent = percent(other);
      row.cells[3].textContent = `${times(ratio)} ×`;
      const from = ratio === 1 ? "" : chance > other ? "A" : "B";
      row.cells[4].textContent = from && `from ${from}`;
      row.dataset.from = from;
      return;
    }
    row.cells[1].textContent = length(distances[id], unit);
    row.cells[2].textContent = percent(chance);
    // Bars fill the column at half, or at the likeliest output if that is more.
    const full = Math.max(top, 0.5);
    row.cells[3].children[0].style.inlineSize = `${(100 * chance) / full}%`;
    if (this.kind === "drawn") {
      row.dataset.count = counts[id];
      row.cells[3].children[1].style.inlineSize = `${Math.min(100, (100 * (shares?.[id] ?? 0)) / full)}%`;
      row.cells[4].textContent = count(counts[id]);
    }
  }

  /** One row can be reached with Tab; arrows lead on from there. */
  rove() {
    const focused = document.activeElement?.closest?.("#outputs tbody tr");
    [...this.body.rows].forEach((row, rank) => {
      row.tabIndex = (focused ? row === focused : rank === 0) ? 0 : -1;
    });
  }

  walk(event) {
    const row = event.target.closest("tbody tr");
    if (!row) return;
    const next = {
      ArrowDown: row.nextElementSibling,
      ArrowUp: row.previousElementSibling,
      Home: this.body.firstElementChild,
      End: this.body.lastElementChild,
    }[event.key];
    if (!next) return;
    event.preventDefault();
    next.focus();
    this.rove();
  }
}

function bar(name) {
  const element = document.createElement("i");
  element.className = `bar ${name}`;
  return element;
}

function idOf(target) {
  const row = target.closest("tr[data-output-id]");
  return row ? Number(row.dataset.outputId) : null;
}
