// Runs beside the page in a world of its own: passes the page's questions to the extension and its answers back.
//
// True positions are in this script's hands only where the person has switched the site off; then they come from the
// browser, after the browser's own question.

(() => {
  const api = globalThis.browser ?? globalThis.chrome;
  const line = performance;
  const DENIED = 1;
  const UNAVAILABLE = 2;
  const WORDS = { 1: "User denied Geolocation", 2: "Position unavailable", 3: "Timeout expired" };

  /** Watches of the page: what ends each of them. */
  const watches = new Map();

  // The page's own world may run no scripts here. Then those of the windows around this one, and of the ones that opened
  // these, cover it: the nearest may run none either.
  const around = (one) => (one.parent === one ? one.opener : one.parent);
  const called = new Set([window, null]);
  for (let one = around(window); !called.has(one); one = around(one)) {
    called.add(one);
    try {
      one.performance.dispatchEvent(new MessageEvent("metricdp:frame", { source: window }));
    } catch {
      // A window of another origin has no way into this one.
    }
  }

  const tell = (id, answer) =>
    line.dispatchEvent(new CustomEvent("metricdp:answer", { detail: JSON.stringify({ id, ...answer }) }));
  const fail = (id, code) => tell(id, { error: { code, message: WORDS[code] } });

  line.addEventListener("metricdp:ask", ({ detail }) => {
    let asked;
    try {
      asked = JSON.parse(detail);
    } catch {
      return; // not from our script
    }
    const { id, act, options } = asked;
    if (typeof id !== "string") return;
    if (act === "once") once(id, options);
    else if (act === "watch") watch(id, options);
    else if (act === "clear") end(id);
  });

  async function once(id, options) {
    const answer = await report();
    if (answer.kind === "off") navigator.geolocation.getCurrentPosition(...relay(id), limited(options));
    else give(id, answer);
  }

  /** One answer at once and one at the start of every period, wherever the person goes. */
  async function watch(id, options) {
    let timer = 0;
    let native = null;
    const stop = () => {
      clearTimeout(timer);
      if (native !== null) navigator.geolocation.clearWatch(native);
      native = null;
    };
    watches.set(id, stop);
    const next = async () => {
      const answer = await report();
      if (!watches.has(id)) return;
      stop();
      if (answer.kind === "off") {
        native = trueWatch(id, options, next);
        return;
      }
      give(id, answer);
      if (answer.kind === "denied") end(id);
      else timer = setTimeout(next, Math.max(answer.next - Date.now(), 0) + 1);
    };
    await next();
  }

  function end(id) {
    watches.get(id)?.();
    watches.delete(id);
  }

  /** The browser's own watch; before each position it is made sure that the site is still switched off. */
  function trueWatch(id, options, otherwise) {
    const [succeed, failed] = relay(id);
    const still = async (pass, value) => {
      const { kind } = await report();
      if (!watches.has(id)) return;
      if (kind === "off") pass(value);
      else otherwise();
    };
    return navigator.geolocation.watchPosition(
      (position) => still(succeed, position),
      (error) => still(failed, error),
      limited(options),
    );
  }

  function relay(id) {
    return [
      ({ coords, timestamp }) => {
        const { latitude, longitude, accuracy, altitude, altitudeAccuracy, heading, speed } = coords;
        tell(id, { position: { latitude, longitude, accuracy, altitude, altitudeAccuracy, heading, speed, timestamp } });
      },
      ({ code }) => fail(id, code),
    ];
  }

  const limited = ({ enableHighAccuracy, maximumAge, timeout } = {}) => ({
    enableHighAccuracy: Boolean(enableHighAccuracy),
    maximumAge: Number(maximumAge) || 0,
    timeout: Number.isFinite(timeout) ? timeout : 0xffffffff,
  });

  function give(id, answer) {
    if (answer.kind === "report") tell(id, { position: answer.position });
    else fail(id, answer.kind === "denied" ? DENIED : UNAVAILABLE);
  }

  /** What the extension says to this frame. Whatever goes wrong, the page gets no position. */
  async function report() {
    const denied = { kind: "denied", next: Infinity };
    if (!isSecureContext) return denied;
    await visible();
    try {
      const { state } = await navigator.permissions.query({ name: "geolocation" });
      // The person, or the page around this frame, has forbidden it.
      if (state === "denied") return denied;
      return (await api.runtime.sendMessage({ ask: "report", granted: state === "granted" })) ?? denied;
    } catch {
      return { kind: "unavailable", next: Date.now() + 60_000 };
    }
  }

  /** Nobody is asked on behalf of a page that nobody sees. */
  function visible() {
    if (document.visibilityState === "visible") return null;
    return new Promise((resolve) => {
      const look = () => {
        if (document.visibilityState !== "visible") return;
        document.removeEventListener("visibilitychange", look);
        resolve();
      };
      document.addEventListener("visibilitychange", look);
    });
  }

  // The extension learns whose page this is from the frame on top; a frame's own word is not taken for it.
  if (parent === window) {
    api.runtime.onMessage.addListener((message, _, respond) => {
      if (message?.ask !== "site") return;
      const site = location.protocol === "file:" ? "file://" : self.origin;
      navigator.permissions.query({ name: "geolocation" }).then(
        ({ state }) => respond({ site, granted: state === "granted" }),
        () => respond({ site, granted: false }),
      );
      return true;
    });
  }
})();
