// Runs in the page's own world, before any of the page's scripts: replaces what `navigator.geolocation` can do.
//
// The browser's functions are dropped, not kept aside, so nothing here can hand them out. Answers come from the content
// script beside this one, which the page cannot reach into; all that travels between the two is what the page may have.
//
// Frames that come later are covered by code that runs among what the page has changed by then. So `cover` and all that it
// calls use functions that were kept at the start, no iterators, and for options objects without a prototype.

(() => {
  // An object that both worlds see, and whose listeners outlive `document.open()`.
  const line = performance;
  const listen = line.addEventListener.bind(line);
  const send = line.dispatchEvent.bind(line);
  const { parse, stringify } = JSON;
  const { apply } = Reflect;
  const { create, defineProperty, getOwnPropertyDescriptor, keys, setPrototypeOf } = Object;
  const Wire = CustomEvent;
  const later = Promise.prototype.then.bind(Promise.resolve());

  /** Do something for each of the fields of an object, or of the entries of a list. */
  const each = (fields, act) => {
    const names = keys(fields);
    for (let i = 0; i < names.length; i++) act(fields[names[i]], names[i]);
  };
  /** How a property is described, untouched by what a page puts into `Object.prototype`. */
  const described = (owner, name) => {
    const found = getOwnPropertyDescriptor(owner, name);
    return found && setPrototypeOf(found, null);
  };

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
    each(FIELDS, (fields, name) => {
      const { prototype } = realm[name];
      each(fields, (field) => {
        const getter = {
          get [field]() {
            if (!Stamped.has(this)) throw new realm.TypeError("Illegal invocation");
            return Stamped.read(this, field);
          },
        };
        const { get } = described(getter, field);
        defineProperty(prototype, field, { __proto__: null, get, set: undefined, enumerable: true, configurable: true });
      });
      replace(prototype, "toJSON", {
        toJSON() {
          const plain = {};
          each(fields, (field) => (plain[field] = this[field]?.toJSON?.() ?? this[field]));
          return plain;
        },
      });
    });
  }

  function replace(prototype, name, { [name]: value }) {
    defineProperty(prototype, name, { __proto__: null, value, writable: true, enumerable: true, configurable: true });
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
    each(calls, (_, name) => replace(prototype, name, calls));
  }

  // ---- Windows that the browser gives no script to, or too late --------------------------------------------------------

  const covered = new WeakSet();
  const seen = new WeakSet();
  const has = WeakSet.prototype.has;
  const add = WeakSet.prototype.add;

  const text = Function.prototype.toString;
  const { includes } = String.prototype;
  const isNative = (call) => apply(includes, apply(text, call, []), ["[native code]"]);

  /** Replace the functions of a window, if its origin is ours. One that its own script has covered asks for itself. */
  function cover(realm) {
    try {
      const { Geolocation } = realm;
      if (!Geolocation || apply(has, covered, [Geolocation])) return;
      if (realm !== window && !isNative(Geolocation.prototype.getCurrentPosition)) return;
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
   * A frame that was seen before has loaded its own script since, if it shows anything else by now, or has called.
   */
  function sweep(realm) {
    const count = apply(lengthOf, realm, []);
    for (let index = 0; index < count; index++) {
      const frame = realm[index];
      if (apply(has, seen, [frame])) continue;
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
    Document: ["append", "prepend", "replaceChildren", "moveBefore", "write", "writeln", "open", "execCommand", "body"],
    Range: ["insertNode", "surroundContents"],
    HTMLTableElement: ["caption", "tHead", "tFoot"],
    HTMLObjectElement: ["data"],
    HTMLEmbedElement: ["src"],
  };
  const READING = {
    HTMLIFrameElement: ["contentWindow", "contentDocument", "getSVGDocument"],
    HTMLFrameElement: ["contentWindow", "contentDocument"],
    HTMLObjectElement: ["contentWindow", "contentDocument", "getSVGDocument"],
    HTMLEmbedElement: ["getSVGDocument"],
  };

  const Observer = MutationObserver;
  const { observe } = Observer.prototype;

  function watchFrames(realm) {
    const home = described(realm.Node.prototype, "ownerDocument").get;
    const view = described(realm.Document.prototype, "defaultView").get;
    const held = described(realm.Range.prototype, "commonAncestorContainer").get;
    const documentOf = (node) => apply(home, node, []) ?? node; // a document has no owner but itself
    /** The window in which the document of a node or of a range is shown. */
    const windowOf = (target) => {
      try {
        return apply(view, documentOf(target), []);
      } catch {
        return apply(view, documentOf(apply(held, target, [])), []);
      }
    };
    const afterInserting = (target, result, member, given) => {
      // With three arguments `document.open` is `window.open`.
      if (member === "open" && given.length > 2) return afterReading(target, result, member);
      const at = windowOf(target);
      if (at && at !== realm) sweep(at);
      sweep(realm);
    };
    const afterReading = (_, result, member) => {
      if (result) cover(member === "contentDocument" || member === "getSVGDocument" ? apply(view, result, []) : result);
    };
    each(INSERTING, (members, name) => wrap(realm[name]?.prototype, members, afterInserting));
    each(READING, (members, name) => wrap(realm[name]?.prototype, members, afterReading));
    wrap(realm, ["open"], afterReading);
    follow(realm);
  }

  /** Cover what the parser inserts into the document that a window shows: observers are told before the next script runs. */
  function follow(realm) {
    const observer = new Observer(() => sweep(realm));
    apply(observe, observer, [realm.document, { __proto__: null, childList: true, subtree: true }]);
    sweep(realm);
  }

  // As many arguments take 64 kB of the stack for a moment. Where so much is not left, a page has filled it up to let a
  // frame come into being whose covering fails; then nothing is inserted either.
  const BALLAST = Array(2 ** 13).fill(0);
  const spareStack = () => {};

  function wrap(owner, members, then) {
    each(owner ? members : [], (member) => {
      const own = described(owner, member);
      if (!own?.configurable) return;
      const around = (call) =>
        call && {
          // As a method it has a name and is no constructor, like the browser's.
          [member](...given) {
            apply(spareStack, undefined, BALLAST);
            const result = apply(call, this, given);
            then(this, result, member, given);
            return result;
          },
        }[member];
      const { value, get, set } = own;
      const isRead = member === "contentWindow" || member === "contentDocument";
      const changed = value ? { value: around(value) } : { get: isRead ? around(get) : get, set: around(set) };
      defineProperty(owner, member, { __proto__: null, ...own, ...changed });
    });
  }

  // A window whose scripts are off cannot run this one, so its content script calls those of the windows around it. It may
  // be covered already, from before it loaded, and show another document since.
  const caller = getOwnPropertyDescriptor(MessageEvent.prototype, "source").get;
  listen("metricdp:frame", (event) => {
    const realm = apply(caller, event, []);
    cover(realm);
    follow(realm);
  });

  if (typeof Geolocation === "function") cover(window);
})();
