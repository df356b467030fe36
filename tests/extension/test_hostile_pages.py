"""Pages that look for a way round the extension, in a browser that would give them the true position."""

import time

import pytest

from extension_tools import ONCE, TRUE_PLACE

A = "http://a.localhost"

# Each trick returns a window, or something with a `navigator`, without waiting; what it gives is asked at once.
SUDDEN = {
    "own window": "window",
    "fresh iframe": "add('iframe').contentWindow",
    "by index": "(add('iframe'), window[length - 1])",
    "by frames": "(add('iframe'), frames[frames.length - 1])",
    "by name": "(add('iframe', { name: 'inner' }), window.inner)",
    "by window.open of a name": "(add('iframe', { name: 'opened' }), open('', 'opened'))",
    "its document's view": "add('iframe').contentDocument.defaultView",
    "slow source": "add('iframe', { src: '/slow' }).contentWindow",
    "slow source, by index": "(add('iframe', { src: '/slow' }), window[length - 1])",
    "srcdoc": "add('iframe', { srcdoc: '<p>x' }).contentWindow",
    "srcdoc, by index": "(add('iframe', { srcdoc: '<p>x' }), window[length - 1])",
    "javascript": "add('iframe', { src: 'javascript:\"x\"' }).contentWindow",
    "no scripts": "add('iframe', { sandbox: 'allow-same-origin' }).contentWindow",
    "no scripts, by index": "(add('iframe', { sandbox: 'allow-same-origin', src: '/slow' }), window[length - 1])",
    "innerHTML": "(holder().innerHTML = '<iframe src=/slow></iframe>', window[length - 1])",
    "outerHTML": "(holder().outerHTML = '<iframe src=/slow></iframe>', window[length - 1])",
    "insertAdjacentHTML": "(holder().insertAdjacentHTML('beforeend', '<iframe src=/slow></iframe>'), window[length - 1])",
    "setHTMLUnsafe": "(holder().setHTMLUnsafe('<iframe src=/slow></iframe>'), window[length - 1])",
    "closed shadow root": "(holder().attachShadow({ mode: 'closed' }).innerHTML = '<iframe src=/slow></iframe>', window[length - 1])",
    "range": "(inRange('<iframe src=/slow></iframe>'), window[length - 1])",
    "document.write": "written('<iframe src=/slow></iframe>')",
    "template": "(holder().append(copied('<iframe src=/slow></iframe>')), window[length - 1])",
    "replaceWith": "(holder().replaceWith(copied('<iframe src=/slow></iframe>')), window[length - 1])",
    "frame in a frame": "add('iframe').contentDocument.body.appendChild(slow()).contentWindow",
    "another frame's functions": "(add('iframe').contentWindow.Node.prototype.appendChild.call(document.body, slow()), window[length - 1])",
    "another frame's getter": "(getter(add('iframe').contentWindow).call(addSilently(slow())))",
    "a length of its own": "((window.length = 0), add('iframe', { src: '/slow', name: 'hidden' }), window.hidden)",
    "popup": "open('about:blank')",
    "slow popup": "open('/slow')",
    "document.open": "reopened(add('iframe'))",
    "embedded": "add('embed', { src: '/' }).getSVGDocument()?.defaultView ?? window",
}

HELPERS = """
const add = (name, given = {}) => {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(given)) element.setAttribute(key, value);
  document.body.append(element);
  return element;
};
const holder = () => document.body.appendChild(document.createElement('div'));
const slow = () => Object.assign(document.createElement('iframe'), { src: '/slow' });
const copied = (html) => {
  const template = document.createElement('template');
  template.innerHTML = html;
  return template.content.cloneNode(true);
};
const inRange = (html) => {
  const range = document.createRange();
  range.selectNode(holder());
  range.insertNode(range.createContextualFragment(html));
};
const written = (html) => {
  const inner = add('iframe').contentDocument;
  inner.open();
  inner.write(html);
  return inner.defaultView[0];
};
const reopened = (frame) => {
  frame.contentDocument.open();
  frame.contentDocument.close();
  return frame.contentWindow;
};
const getter = (realm) => Object.getOwnPropertyDescriptor(realm.HTMLIFrameElement.prototype, 'contentWindow').get;
const addSilently = (element) => document.body.appendChild(element);
// Asks with a function of this page and with one made in the other window: positions are read through the prototypes
// of the window that the function comes from. The second answer counts, unless scripts are off there.
const reading = '({ coords }) => resolve([coords.longitude, coords.latitude])';
const asked = async (realm) => {
  const { geolocation } = realm.navigator;
  const once = (read) => new Promise((resolve) => {
    setTimeout(() => resolve('silence'), PATIENCE_MS);
    try {
      geolocation.getCurrentPosition(read(resolve), ({ code }) => resolve(`error ${code}`));
    } catch (error) {
      resolve(String(error));
    }
  });
  const mine = once((resolve) => ({ coords }) => resolve([coords.longitude, coords.latitude]));
  const theirs = once((resolve) => new realm.Function('resolve', `return ${reading}`)(resolve));
  const [one, other] = await Promise.all([mine, theirs]);
  return Array.isArray(other) ? other : one;
};
"""

# Places that a frame shows only after a while; asked again and again while it loads.
LATE = {
    "same origin": "add('iframe', { src: '/' })",
    "srcdoc": "add('iframe', { srcdoc: '<p>x' })",
    "no scripts": "add('iframe', { sandbox: 'allow-same-origin', srcdoc: '<p>x' })",
    "no scripts by policy": "add('iframe', { src: '/inert' })",
    "javascript": "add('iframe', { src: 'javascript:\"<p>x\"' })",
    "blob": "add('iframe', { src: URL.createObjectURL(new Blob(['<p>x'], { type: 'text/html' })) })",
    "svg": "add('iframe', { src: '/drawing.svg' })",
    "xml": "add('iframe', { src: '/data.xml' })",
    "text": "add('iframe', { src: '/plain.txt' })",
}

# Takes all functions that it needs out of a window at once, before anything can be replaced there.
TAKING = """
const last = () => window[length - 1];
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const own = Object.getOwnPropertyDescriptor;
const call = Reflect.apply;
const taken = (realm) => ({
  ask: realm.Geolocation.prototype.getCurrentPosition,
  where: realm.navigator.geolocation,
  coords: own(realm.GeolocationPosition.prototype, 'coords').get,
  lon: own(realm.GeolocationCoordinates.prototype, 'longitude').get,
  lat: own(realm.GeolocationCoordinates.prototype, 'latitude').get,
});
const askedWith = ({ ask, where, coords, lon, lat }) => new Promise((resolve) => {
  setTimeout(() => resolve('silence'), PATIENCE_MS);
  const read = (position) => {
    const found = call(coords, position, []);
    resolve([call(lon, found, []), call(lat, found, [])]);
  };
  call(ask, where, [read, ({ code }) => resolve(`error ${code}`)]);
});
// Inserts a frame while the page's prototypes are changed.
const amid = (change, undo, frame = slow()) => {
  const at = holder();
  change();
  try { at.appendChild(frame); } catch {} finally { undo(); }
  return taken(last());
};
const poisoned = (name) => amid(
  () => Object.defineProperty(Object.prototype, name, { value() {}, configurable: true, writable: true }),
  () => { delete Object.prototype[name]; },
);
const replaced = (owner, name, value) => {
  const before = owner[name];
  return amid(() => { owner[name] = value; }, () => { owner[name] = before; });
};
// Inserts a frame where hardly any stack is left, and so none for what comes after.
const amidRecursion = (frame) => {
  const at = holder();
  const dive = () => {
    try { dive(); } catch (error) {
      if (!frame.isConnected) try { at.appendChild(frame); } catch {}
      throw error;
    }
  };
  try { dive(); } catch {}
  return taken(last());
};
const inTable = (part, member) => {
  const table = holder().appendChild(document.createElement('table'));
  const filled = document.createElement(part);
  filled.append(slow());
  table[member] = filled;
  return taken(last());
};
const asBody = () => {
  const body = document.createElement('body');
  body.append(slow());
  document.body = body;
  return taken(last());
};
const inForeignRange = () => {
  const inner = add('iframe').contentDocument;
  const range = inner.createRange();
  range.selectNodeContents(inner.body);
  Range.prototype.insertNode.call(range, slow());
  return taken(last()[0]);
};
// Two frames without scripts, one in the other; the inner one is taken from as soon as it is there.
const silentFrames = async () => {
  add('iframe', { sandbox: 'allow-same-origin', srcdoc: '<iframe src=/inert></iframe>' });
  while (!last()[0]) await sleep(1);
  return taken(last()[0]);
};
const loaded = async (popup, path) => {
  while (popup.location.pathname !== path || popup.document.readyState !== 'complete') await sleep(20);
  return popup;
};
const silenced = (popup) => {
  popup.location = '/inert';
  return loaded(popup, '/inert');
};
// Pop-ups that go on to a page without scripts, one of them opened by the other before that.
const silentPopup = async () => silenced(await loaded(open('/'), '/'));
const popupOfSilentPopup = async () => {
  const popup = await loaded(open('/'), '/');
  const other = await loaded(popup.open('/'), '/');
  await silenced(popup);
  return silenced(other);
};
"""

# Each trick returns what it has taken from a window.
CAREFUL = {
    "iterators of arrays": "replaced(Array.prototype, Symbol.iterator, function* () {})",
    "steps of iterators": "replaced(Object.getPrototypeOf([][Symbol.iterator]()), 'next', () => ({ done: true }))",
    "keys": "replaced(Object, 'keys', () => [])",
    "sets": "replaced(Set.prototype, 'has', () => false)",
    "calls": "replaced(Reflect, 'apply', () => {})",
    "descriptors, get": "poisoned('get')",
    "descriptors, set": "poisoned('set')",
    "descriptors, value": "poisoned('value')",
    "descriptors, writable": "poisoned('writable')",
    "options of observers": "poisoned('attributeFilter')",
    "no stack left": "amidRecursion(slow())",
    "no stack left, nothing to load": "amidRecursion(document.createElement('iframe'))",
    "body": "asBody()",
    "caption": "inTable('caption', 'caption')",
    "head of a table": "inTable('thead', 'tHead')",
    "foot of a table": "inTable('tfoot', 'tFoot')",
    "range of another window": "inForeignRange()",
    "document.open with three arguments": "taken(document.open('/slow', 'three', ''))",
    "no scripts inside no scripts": "await silentFrames()",
    "popup without scripts": "taken(await silentPopup())",
    "popup of a popup without scripts": "taken(await popupOfSilentPopup())",
}

# A way that is open: the frame of an object comes with the layout, after no change that a script is told of.
OPEN = """async () => {
  const before = window.length;
  add('object', { data: '/slow', type: 'text/html' });
  while (window.length === before) await new Promise((resolve) => setTimeout(resolve, 4));
  return asked(window[window.length - 1]);
}"""


def patience_ms(extension):
    """Return after how long a window is silent: twenty times as long as an answer takes on this machine now."""
    page = extension.visit()
    page.evaluate(ONCE)  # the period's report is drawn
    started = time.monotonic()
    page.evaluate(ONCE)
    seconds = time.monotonic() - started
    page.close()
    return max(1200, round(20_000 * seconds))


@pytest.fixture
def hostile(extension):
    """Open a page to which the browser itself would give the true position."""
    extension.choose()
    extension.allow(A)
    extension.sites.pages["/inert"] = (b"<p>x", {"Content-Security-Policy": "sandbox allow-same-origin"})
    extension.sites.pages["/drawing.svg"] = (
        b'<svg xmlns="http://www.w3.org/2000/svg"/>',
        {"Content-Type": "image/svg+xml"},
    )
    extension.sites.pages["/data.xml"] = (b"<a/>", {"Content-Type": "text/xml"})
    extension.sites.pages["/plain.txt"] = (b"abc", {"Content-Type": "text/plain"})
    extension.context.grant_permissions(["geolocation"], origin=A)
    extension.context.set_geolocation({**TRUE_PLACE, "accuracy": 5})
    extension.helpers = HELPERS.replace("PATIENCE_MS", str(patience_ms(extension)))
    yield extension
    extension.context.set_geolocation(None)
    extension.context.clear_permissions()


TRUE = list(TRUE_PLACE.values())


def test_the_browser_would_give_the_true_position(hostile):
    hostile.allow(A, choice="off")
    page = hostile.visit()
    assert page.evaluate(f"() => {{ {hostile.helpers} return asked(window); }}") == TRUE


def test_no_window_that_can_be_had_at_once_gives_the_true_position(hostile):
    page = hostile.visit()
    tricks = ", ".join(f"[{name!r}, () => {code}]" for name, code in SUDDEN.items())
    found = page.evaluate(f"""async () => {{ {hostile.helpers}
        const found = {{}};
        for (const [name, trick] of [{tricks}]) {{
            try {{ found[name] = await asked(trick()); }} catch (error) {{ found[name] = String(error); }}
        }}
        return found;
    }}""")
    assert set(found) == set(SUDDEN)
    assert [name for name, answer in found.items() if answer == TRUE] == []
    # The tricks reach something: most are given the report that everybody gets.
    assert sum(isinstance(answer, list) for answer in found.values()) > 20, found


@pytest.mark.slow
def test_no_frame_gives_the_true_position_while_it_loads(hostile):
    page = hostile.visit()
    tricks = ", ".join(f"[{name!r}, () => {code}]" for name, code in LATE.items())
    found = page.evaluate(f"""async () => {{ {hostile.helpers}
        const found = {{}};
        for (const [name, trick] of [{tricks}]) {{
            const before = window.length;
            trick();
            const answers = [];
            for (let step = 0; step < 60; step++) {{
                const frame = window.length > before ? window[window.length - 1] : null;
                if (frame?.navigator) answers.push(asked(frame));
                document.body.offsetTop;
                await new Promise((resolve) => setTimeout(resolve, 4));
            }}
            found[name] = await Promise.all(answers);
        }}
        return found;
    }}""")
    leaks = [name for name, answers in found.items() if TRUE in answers]
    assert leaks == []
    assert sum(any(isinstance(one, list) for one in answers) for answers in found.values()) >= 7, found


def test_no_page_that_takes_what_it_needs_at_once_gets_the_true_position(hostile):
    helpers = hostile.helpers + TAKING.replace("PATIENCE_MS", str(patience_ms(hostile)))
    tricks = ", ".join(f"[{name!r}, async () => {code}]" for name, code in CAREFUL.items())
    page = hostile.visit()
    found = page.evaluate(f"""async () => {{ {helpers}
        const found = {{}};
        for (const [name, trick] of [{tricks}]) {{
            try {{ found[name] = await askedWith(await trick()); }} catch (error) {{ found[name] = String(error); }}
        }}
        return found;
    }}""")
    assert set(found) == set(CAREFUL)
    assert [name for name, answer in found.items() if answer == TRUE] == []
    # Nobody who is given nothing at all has shown anything.
    assert [name for name, answer in found.items() if not isinstance(answer, list)] == []


def test_a_window_asks_for_itself_after_the_one_that_opened_it_is_gone(hostile):
    hostile.sites.pages["/links"] = (b"<a href=/other target=_blank rel=opener>other</a>", {})
    page = hostile.visit(path="/links")
    with hostile.context.expect_page() as opened:
        page.click("a")
    other = opened.value
    other.wait_for_load_state()
    assert other.evaluate("() => opener !== null")
    page.close()
    assert "latitude" in other.evaluate(ONCE)


def test_without_the_browsers_permission_an_open_way_leads_to_its_own_question(hostile):
    hostile.context.clear_permissions()
    page = hostile.visit()
    assert page.evaluate(f"() => {{ {hostile.helpers} return ({OPEN})(); }}") != TRUE
    state = page.evaluate("async () => (await navigator.permissions.query({ name: 'geolocation' })).state")
    assert state != "granted"


def test_what_the_parser_inserts_is_covered_before_the_next_script(hostile):
    script = "<script>answers.push(asked(window[length - 1]));</script>"
    frames = [
        "<iframe></iframe>",
        "<iframe src=/slow></iframe>",
        "<iframe srcdoc='<p>x'></iframe>",
        "<iframe sandbox=allow-same-origin srcdoc='<p>x'></iframe>",
        "<div><template shadowrootmode=open><iframe src=/slow></iframe></template></div>",
        "<div><template shadowrootmode=closed><iframe src=/slow></iframe></template></div>",
    ]
    body = f"<!doctype html><script>{hostile.helpers} const answers = [];</script><body>" + "".join(
        one + script for one in frames
    )
    hostile.sites.pages["/parsed"] = (body.encode(), {})
    page = hostile.context.new_page()
    page.goto(f"{A}/parsed", wait_until="commit")
    page.wait_for_function(f"() => answers.length === {len(frames)}")
    found = page.evaluate("() => Promise.all(answers)")
    assert TRUE not in found
    assert sum(isinstance(one, list) for one in found) >= 4, found


def test_no_original_function_is_left_in_sight(hostile):
    page = hostile.visit()
    found = page.evaluate("""() => {
        const native = (value) => typeof value === 'function' && /\\[native code\\]/.test(Function.prototype.toString.call(value));
        const names = ['getCurrentPosition', 'watchPosition', 'clearWatch'];
        delete Geolocation.prototype.getCurrentPosition;
        const left = navigator.geolocation.getCurrentPosition;
        return {
            native: names.filter((name) => native(navigator.geolocation[name]) || native(Geolocation.prototype[name])),
            left: typeof left,
            own: Object.getOwnPropertyNames(navigator.geolocation),
            worker: null,
        };
    }""")
    assert found == {"native": [], "left": "undefined", "own": [], "worker": None}
    worker = """async () => {
        const code = 'postMessage(typeof navigator.geolocation)';
        const worker = new Worker(URL.createObjectURL(new Blob([code])));
        return new Promise((resolve) => { worker.onmessage = ({ data }) => resolve(data); });
    }"""
    assert page.evaluate(worker) == "undefined"


def test_poisoned_prototypes_see_reports_only(hostile):
    page = hostile.visit()
    seen = page.evaluate(f"""async () => {{ {hostile.helpers}
        const seen = [];
        const spy = (owner, name) => {{
            const own = owner[name];
            owner[name] = function (...given) {{
                seen.push(given, this);
                return Reflect.apply(own, this, given);
            }};
        }};
        for (const name of ['get', 'set', 'delete']) spy(Map.prototype, name);
        for (const name of ['parse', 'stringify']) spy(JSON, name);
        spy(EventTarget.prototype, 'dispatchEvent');
        spy(Object, 'create');
        spy(Object, 'defineProperty');
        performance.addEventListener('metricdp:answer', ({{ detail }}) => seen.push(detail));
        performance.addEventListener('metricdp:ask', ({{ detail }}) => seen.push(detail));
        const answer = await asked(window);
        const text = [];
        const walk = (value, depth) => {{
            if (depth > 4) return;
            text.push(String(value));
            if (typeof value === 'object' && value !== null) for (const key of Object.keys(value)) walk(value[key], depth + 1);
        }};
        seen.forEach((one) => walk(one, 0));
        return {{ answer, text: text.join(' ') }};
    }}""")
    assert isinstance(seen["answer"], list)
    assert seen["answer"] != TRUE
    assert str(TRUE_PLACE["longitude"]) not in seen["text"]
    assert str(TRUE_PLACE["latitude"]) not in seen["text"]


def test_answers_look_like_the_browsers_and_cannot_be_forged(hostile):
    page = hostile.visit()
    found = page.evaluate("""() => new Promise((resolve) => navigator.geolocation.getCurrentPosition((position) => {
        const read = Object.getOwnPropertyDescriptor(GeolocationPosition.prototype, 'coords').get;
        let forged = 'taken';
        try { read.call({ coords: 1 }); } catch (error) { forged = error.name; }
        let fixed = position.coords.latitude;
        try { position.coords.latitude = 0; } catch {}
        resolve({
            kinds: [position instanceof GeolocationPosition, position.coords instanceof GeolocationCoordinates],
            forged,
            unchanged: position.coords.latitude === fixed,
            json: JSON.parse(JSON.stringify(position)),
            call: (() => { try { navigator.geolocation.getCurrentPosition(); } catch (error) { return error.name; } })(),
            stray: (() => { try { Geolocation.prototype.getCurrentPosition.call({}, () => {}); } catch (error) { return error.name; } })(),
            length: navigator.geolocation.getCurrentPosition.length,
            name: navigator.geolocation.getCurrentPosition.name,
        });
    }))""")
    assert found["kinds"] == [True, True]
    assert (found["forged"], found["call"], found["stray"]) == ("TypeError",) * 3
    assert found["unchanged"]
    assert set(found["json"]) == {"coords", "timestamp"}
    assert (found["length"], found["name"]) == (1, "getCurrentPosition")


def test_a_page_cannot_decide_for_the_person(hostile):
    """Messages that the page makes up reach nothing that it could not have anyway."""
    hostile.allow(A, choice="nothing")
    page = hostile.visit()
    answers = page.evaluate("""async () => {
        const answers = [];
        performance.addEventListener('metricdp:answer', ({ detail }) => answers.push(JSON.parse(detail)));
        const ask = (detail) => performance.dispatchEvent(new CustomEvent('metricdp:ask', { detail }));
        ask('not JSON');
        ask('{}');
        ask(JSON.stringify({ id: 'x', act: 'decide', choice: 'off', site: location.origin }));
        ask(JSON.stringify({ id: 'y', act: 'once', kind: 'off', options: { granted: true } }));
        while (answers.length === 0) await new Promise((resolve) => setTimeout(resolve, 20));
        await new Promise((resolve) => setTimeout(resolve, 200));
        return answers;
    }""")
    assert [one["id"] for one in answers] == ["y"]
    assert answers[0]["error"]["code"] == 1
    assert page.evaluate("() => typeof chrome?.runtime?.sendMessage") == "undefined"
