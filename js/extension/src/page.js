// Runs in the page's own world, before any of the page's scripts: replaces what `navigator.geolocation` can do.
//
// The browser's functions are dropped, not kept aside, so nothing here can hand them out. Answers come from the content
// script beside this one, which the page cannot reach into; all that travels between the two is what the page may have.

(() => {
  // An object that both worlds see, and whose listeners outlive `document.open()`.
  const line = performance;
  const listen = line.addEventListener.bind(line);
  const send = line.dispatchEvent.bind(line);
  const { parse, stringify } = JSON;
  const { apply } = Reflect;
  const { create, defineProperty, entries, fromEntries, getOwnPropertyDescriptor } = Object;
  const Wire = CustomEvent;
  const later = Promise.prototype.then.bind(Promise.resolve());

  // ---- Questions and answers ----------------------------------------------------------------------------------------

  const waiting = new Map();
  const found = Map.prototype.get.bind(waiting);
  const keep = Map.prototype.set.bind(waiting);
  const forget = Map.prototype.delete.bind(waiting);
  // Several windows may share a line, and this script may run twice in one: ids must not meet.
  const mine = crypto.randomUUID();
  let last = 0;

  const ask = (id, act, options) => send(new Wire("metricdp:ask", { detail: stringify({ id: `${mine} ${id}`, act, options }) }));

  listen("metricdp:answer", ({ detail }) => {
    const { id, position, error } = parse(detail);
    if (!id.startsWith(mine)) return;
    const number = Number(id.slice(mine.length + 1));
    const asked = found(number);
    if (!asked) return;
    if (!asked.watch) forget(number);
    const { realm, succeed, fail } = asked;
    if (position) apply(succeed, undefined, [asPosition(realm, position)]);
    else if (fail) apply(fail, undefined, [asError(realm, error)]);
  });

  function question(realm, watch, [succeed, fail, options]) {
    if (typeof succeed !== "function") throw new realm.TypeError("parameter 1 is not of type 'Function'.");
    if (fail !== undefined && fail !== null && typeof fail !== "function") {
      throw new realm.TypeError("parameter 2 is not of type 'Function'.");
    }
    const id = ++last;
    keep(id, { realm, watch, succeed, fail });
    const wanted = {
      enableHighAccuracy: Boolean(options?.enableHighAccuracy),
      maximumAge: wait(options?.maximumAge, 0),
      timeout: wait(options?.timeout, 0xffffffff),
    };
    // Never before the page's own call has returned.
    later(() => ask(id, watch ? "watch" : "once", wanted));
    return id;
  }

  const wait = (value, usual) => {
    if (value === undefined) return usual;
    const number = Number(value);
    return number > 0 ? Math.min(number, 0xffffffff) : 0;
  };

  // ---- Objects that look like the browser's --------------------------------------------------------------------------

  // A private field on an object of any prototype: no page can read, forge or replace it.
  class Bare {
    constructor(target) {
      return target;
    }
  }
  class Stamped extends Bare {
    #values;
    constructor(target, values) {
      super(target);
      this.#values = values;
    }
    static read(target, name) {
      return #values in target ? target.#values[name] : undefined;
    }
    static has(target) {
      return typeof target === "object" && target !== null && #values in target;
    }
  }

  const made = (realm, name, values) => new Stamped(create(realm[name].prototype), values);

  function asPosition(realm, { timestamp, ...coords }) {
    return made(realm, "GeolocationPosition", { coords: made(realm, "GeolocationCoordinates", coords), timestamp });
  }

  const asError = (realm, { code, message }) => made(realm, "GeolocationPositionError", { code, message });

  const FIELDS = {
    GeolocationPosition: ["coords", "timestamp"],
    GeolocationCoordinates: ["latitude", "longitude", "accuracy", "altitude", "altitudeAccuracy", "heading", "speed"],
    GeolocationPositionError: ["code", "message"],
  };

  function dress(realm) {
    for (const [name, fields] of entries(FIELDS)) {
      const { prototype } = realm[name];
      for (const field of fields) {
        const getter = {
          get [field]() {
            if (!Stamped.has(this)) throw new realm.TypeError("Illegal invocation");
            return Stamped.read(this, field);
          },
        };
        const { get } = getOwnPropertyDescriptor(getter, field);
        defineProperty(prototype, field, { get, set: undefined, enumerable: true, configurable: true });
      }
      replace(prototype, "toJSON", {
        toJSON() {
          return fromEntries(fields.map((field) => [field, this[field]?.toJSON?.() ?? this[field]]));
        },
      });
    }
  }

  function replace(prototype, name, { [name]: value }) {
    defineProperty(prototype, name, { value, writable: true, enumerable: true, configurable: true });
  }

  // ---- What pages call -----------------------------------------------------------------------------------------------

  function answer(realm) {
    const { prototype } = realm.Geolocation;
    const checked = (target) => {
      if (!(target instanceof realm.Geolocation)) throw new realm.TypeError("Illegal invocation");
    };
    const calls = {
      getCurrentPosition(success, ...others) {
        checked(this);
        question(realm, false, [success, ...others]);
      },
      watchPosition(success, ...others) {
        checked(this);
        return question(realm, true, [success, ...others]);
      },
      clearWatch(id) {
        checked(this);
        if (forget(Number(id))) ask(Number(id), "clear");
      },
    };
    for (const name of Object.keys(calls)) replace(prototype, name, calls);
  }

  // ---- Windows that the browser gives no script to, or too late --------------------------------------------------------

  const covered = new WeakSet();
  const seen = new WeakSet();
  const has = WeakSet.prototype.has;
  const add = WeakSet.prototype.add;

  /** Replace the functions of a window, if its origin is ours. */
  function cover(realm) {
    try {
      const { Geolocation } = realm;
      if (!Geolocation || apply(has, covered, [Geolocation])) return;
      apply(add, covered, [Geolocation]);
    } catch {
      return; // another origin; its own script is there
    }
    answer(realm);
    dress(realm);
    watchFrames(realm);
  }

  // A page may put another `length` in place of the window's.
  const lengthOf = getOwnPropertyDescriptor(window, "length").get;

  /**
   * Cover the frames of a window; `window[0]` and the like cannot be intercepted when they are read.
   *
   * A frame that was seen before has loaded its own script since, if it shows anything else by now. After a message
   * from a frame, `again`, that is not so.
   */
  function sweep(realm, again = false) {
    const count = apply(lengthOf, realm, []);
    for (let index = 0; index < count; index++) {
      const frame = realm[index];
      if (!again && apply(has, seen, [frame])) continue;
      apply(add, seen, [frame]);
      cover(frame);
    }
  }

  // How frames come into a document, or out of its elements.
  const INSERTING = {
    Node: ["appendChild", "insertBefore", "replaceChild"],
    Element: [
      "append", "prepend", "before", "after", "replaceWith", "replaceChildren", "insertAdjacentElement",
      "insertAdjacentHTML", "setHTML", "setHTMLUnsafe", "moveBefore", "innerHTML", "outerHTML",
    ],
    CharacterData: ["before", "after", "replaceWith"],
    DocumentType: ["before", "after", "replaceWith"],
    DocumentFragment: ["append", "prepend", "replaceChildren", "moveBefore"],
    ShadowRoot: ["innerHTML", "setHTML", "setHTMLUnsafe"],
    Document: ["append", "prepend", "replaceChildren", "moveBefore", "write", "writeln", "open", "execCommand"],
    Range: ["insertNode", "surroundContents"],
    HTMLObjectElement: ["data"],
    HTMLEmbedElement: ["src"],
  };
  const READING = {
    HTMLIFrameElement: ["contentWindow", "contentDocument", "getSVGDocument"],
    HTMLFrameElement: ["contentWindow", "contentDocument"],
    HTMLObjectElement: ["contentWindow", "contentDocument", "getSVGDocument"],
    HTMLEmbedElement: ["getSVGDocument"],
  };

  function watchFrames(realm) {
    const home = getOwnPropertyDescriptor(realm.Node.prototype, "ownerDocument").get;
    const view = getOwnPropertyDescriptor(realm.Document.prototype, "defaultView").get;
    /** The window that a node's document is shown in; a document has no owner but itself. */
    const windowOf = (node) => {
      try {
        return apply(view, apply(home, node, []) ?? node, []);
      } catch {
        return null; // a range, which has no owner
      }
    };
    const afterInserting = (target) => {
      const at = windowOf(target);
      if (at && at !== realm) sweep(at);
      sweep(realm);
    };
    const afterReading = (_, result, member) => {
      if (result) cover(SHOWN.has(member) ? apply(view, result, []) : result);
    };
    for (const [name, members] of entries(INSERTING)) wrap(realm[name]?.prototype, members, afterInserting);
    for (const [name, members] of entries(READING)) wrap(realm[name]?.prototype, members, afterReading);
    wrap(realm, ["open"], afterReading);
    // What the parser inserts: observers are told before the next script runs.
    const observer = new realm.MutationObserver(() => sweep(realm));
    observer.observe(realm.document, { childList: true, subtree: true });
    sweep(realm);
  }

  const SHOWN = new Set(["contentDocument", "getSVGDocument"]);
  const GETTERS = new Set(["contentWindow", "contentDocument"]);

  function wrap(owner, members, then) {
    for (const member of owner ? members : []) {
      const own = getOwnPropertyDescriptor(owner, member);
      if (!own?.configurable) continue;
      const around = (call) =>
        call && {
          // As a method it has a name and is no constructor, like the browser's.
          [member](...given) {
            const result = apply(call, this, given);
            then(this, result, member);
            return result;
          },
        }[member];
      const { value, get, set } = own;
      if (value) defineProperty(owner, member, { ...own, value: around(value) });
      else defineProperty(owner, member, { ...own, get: GETTERS.has(member) ? around(get) : get, set: around(set) });
    }
  }

  // A frame whose scripts are off cannot run this one, so its content script calls the one of the parent.
  listen("metricdp:frame", () => sweep(window, true));

  if (typeof Geolocation === "function") cover(window);
})();
