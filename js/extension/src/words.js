// Figures as people read them.

export function length(metres) {
  if (metres < 999.5) return `${metres < 9.95 ? metres.toFixed(1) : Math.round(metres)} m`;
  return `${(metres / 1000).toFixed(metres < 9995 ? 2 : 1)} km`;
}

export const number = (value) => Number(value.toPrecision(3)).toString();

/** What one report protects, and how far off it is. */
export function radii({ protectionM, accuracyM }) {
  return {
    protection: length(protectionM),
    protectionWords: "To whoever sees one report, no place within this radius of you becomes more than 2.72 times likelier or unlikelier, compared with yours.",
    accuracy: length(accuracyM),
    accuracyWords: "95 % of reports are within this distance of where you are.",
  };
}

/** Nothing undoes reports: what those of one day tell adds up. */
export function sum({ reports, epsilon }) {
  if (reports === 0) return "No report was drawn today.";
  const together = `together ${number(epsilon)} per km, so to all who saw them they protect ${length(1000 / epsilon)}`;
  return reports === 1 ? `One report was drawn today: ${together}.` : `${reports} reports were drawn today: ${together}.`;
}
