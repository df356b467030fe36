// When a new report is drawn, and what a day's reports add up to. No clock, no storage, no position in here.

/**
 * How far outside the region a point may lie and still be reported. The claim in metres reaches 1 km; the ellipsoid
 * differs from the sphere on which this is measured by less than the rest.
 */
export const MARGIN_KM = 0.99;

const MINUTE_MS = 60_000;
const DAY_MS = 24 * 60 * MINUTE_MS;

/** What is remembered before anything was reported. */
export const NOTHING = Object.freeze({ period: null, day: "", reports: 0, epsilon: 0, answer: null });

const lengthMs = (minutes) => Math.round(minutes * MINUTE_MS);

/** Periods start at multiples of their length since 1970, whenever a page asks. */
export const periodOf = (now, minutes) => Math.floor(now / lengthMs(minutes));

export const periodStart = (period, minutes) => period * lengthMs(minutes);

/** The calendar day at the person's place, as text that sorts. */
export function dayOf(now) {
  const date = new Date(now);
  const two = (number) => String(number).padStart(2, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
}

/** What today's reports add up to; a clock that is set back does not give a budget again. */
export function today(memory, now) {
  const day = dayOf(now);
  if (day <= memory.day) return { day: memory.day, reports: memory.reports, epsilon: memory.epsilon };
  return { day, reports: 0, epsilon: 0 };
}

/** Whether a new report must be drawn now. Nothing here depends on a position, and which site asks does not matter. */
export function isDue(memory, { minutes, mostReports }, now) {
  const period = periodOf(now, minutes);
  if (memory.answer !== null && memory.minutes === minutes) {
    // After a clock was wrong by more than a day, its future periods are not waited for.
    const wrong = periodStart(memory.period, minutes) > now + DAY_MS;
    if (period <= memory.period && !wrong) return false;
  }
  return today(memory, now).reports < mostReports;
}

/** The memory after a report was drawn in this period, or after the person was found far outside (`answer.kind`). */
export function after(memory, { minutes }, now, answer, epsilon) {
  const spent = today(memory, now);
  const charged = answer.kind === "report";
  return {
    period: periodOf(now, minutes),
    minutes,
    day: spent.day,
    reports: spent.reports + (charged ? 1 : 0),
    epsilon: spent.epsilon + (charged ? epsilon : 0),
    answer,
  };
}

/** When a page that watches is answered next, in milliseconds since 1970. */
export const nextPeriod = ({ minutes }, now) => periodStart(periodOf(now, minutes) + 1, minutes);

/** The position that pages are given: the same numbers for everybody who asks in this period. */
export function asPosition({ lon, lat }, accuracy, { minutes }, now) {
  return {
    latitude: lat,
    longitude: lon,
    accuracy,
    altitude: null,
    altitudeAccuracy: null,
    heading: null,
    speed: null,
    timestamp: periodStart(periodOf(now, minutes), minutes),
  };
}
