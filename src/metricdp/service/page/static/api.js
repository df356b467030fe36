// Calls to this page's own service. Points travel in bodies only, never in addresses.

let key = "";
let local = null;

/** Let this device answer in place of a service. */
export function useDevice(device) {
  local = device;
}

export const isLocal = () => local !== null;

/** Remember a key for this tab; it is kept nowhere else. */
export function useKey(text) {
  key = text;
}

/** What went wrong, in words that may be shown. */
export class ServiceError extends Error {
  constructor(message, status = 0, retryAfter = 0) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

const TRIES = 8;

/** Read something; if the service limits the rate of requests, wait as long as it says and ask again. */
export async function get(path) {
  if (local) return local.get(path);
  for (let left = TRIES; ; left--) {
    try {
      return await call(path, {});
    } catch (error) {
      if (error.status !== 429 || left === 1) throw error;
      await new Promise((resolve) => setTimeout(resolve, 1000 * Math.max(error.retryAfter, 1)));
    }
  }
}

export async function post(path, body) {
  if (local) return local.post(path, body);
  return call(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
}

/** Read a file. */
export async function bytes(path) {
  const response = await answered(path, {});
  if (!response.ok) throw await refusal(response);
  return response.arrayBuffer();
}

async function call(path, options) {
  const response = await answered(path, options);
  if (!response.ok) throw await refusal(response);
  try {
    return JSON.parse(exactIds(await response.text()));
  } catch {
    throw new ServiceError("The service broke off its answer.");
  }
}

async function answered(path, options) {
  const headers = { ...options.headers, ...(key && { Authorization: `Bearer ${key}` }) };
  try {
    return await fetch(path, { ...options, headers, signal: AbortSignal.timeout(20_000), credentials: "omit" });
  } catch {
    throw new ServiceError("The service does not answer. Is it still running?");
  }
}

/** Ids of up to 64 bits do not all fit into a number here, so long ones become text. Inside of strings quotes are
 *  escaped, so only a field can match. */
const exactIds = (text) => text.replace(/"id":(-?\d{16,})(?=[,}])/g, '"id":"$1"');

async function refusal(response) {
  const problem = await response.json().catch(() => ({}));
  const wait = Number(response.headers.get("Retry-After")) || 0;
  const detail = problem.detail || problem.title || `The service answered with status ${response.status}.`;
  const rules = (problem.errors ?? []).filter(({ rule }) => !detail.includes(rule));
  const words = [detail, ...rules.map(({ where, rule }) => `${where} ${rule}.`)];
  return new ServiceError(words.join(" "), response.status, wait);
}
