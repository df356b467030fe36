// What places are called: by name, by id, or by number. Names come from files, so they are only ever set as text.

const LONGEST = 40; // letters of a name in a sentence

/** Add to a mechanism what its outputs are called, and which output an id in an answer means. */
export function withPlaces(mechanism) {
  const places = mechanism.places ?? Array.from({ length: mechanism.n_outputs }, (_, index) => ({ id: index }));
  const times = new Map();
  for (const { name } of places) times.set(name, (times.get(name) ?? 0) + 1);
  const numbers = new Map(places.map(({ id }, index) => [String(id), index]));
  return {
    ...mechanism,
    named: mechanism.places !== null,
    // Names may repeat; with its id each place has a label of its own.
    labels: places.map(({ id, name }) => (!name ? String(id) : times.get(name) > 1 ? `${name} (${id})` : name)),
    called: (index) => called(places[index]),
    indexOf: (id) => numbers.get(String(id)),
  };
}

/** A place in a sentence. */
function called({ id, name }) {
  if (name) return isolated(`“${shortened(name)}”`);
  return `place ${typeof id === "number" ? id : isolated(shortened(id))}`;
}

/** Text that is written from right to left would turn round what follows it, unless it is isolated. */
export const isolated = (text) => `\u2068${text}\u2069`;

export function shortened(text, longest = LONGEST) {
  const letters = [...text];
  return letters.length > longest ? `${letters.slice(0, longest - 1).join("")}…` : text;
}

export const capital = (words) => words[0].toUpperCase() + words.slice(1);
