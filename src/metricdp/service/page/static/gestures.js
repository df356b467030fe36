// Pointers on the ground: drag to pan, pinch or wheel to zoom, click to choose a place.

const STILL = 6; // pixels that a click may wobble

/**
 * @param {HTMLElement} ground
 * @param {{pan: (dx, dy) => void, zoom: (factor, anchor) => void, click: (place) => void}} react
 */
export function listen(ground, react) {
  const pointers = new Map();
  let moved = false;

  const place = (event) => {
    const frame = ground.getBoundingClientRect();
    return [event.clientX - frame.left, event.clientY - frame.top];
  };

  ground.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || event.target.closest("button, form, a")) return;
    ground.setPointerCapture(event.pointerId);
    if (pointers.size === 0) moved = false;
    pointers.set(event.pointerId, { start: place(event), now: place(event) });
    if (pointers.size > 1) moved = true;
  });

  ground.addEventListener("pointermove", (event) => {
    const pointer = pointers.get(event.pointerId);
    if (!pointer) return;
    const before = [...pointers.values()].map(({ now }) => now);
    const last = pointer.now;
    pointer.now = place(event);
    if (pointers.size === 1) {
      if (!moved && apart(pointer.start, pointer.now) < STILL) return;
      moved = true;
      ground.classList.add("panning");
      react.pan(pointer.now[0] - last[0], pointer.now[1] - last[1]);
    } else if (pointers.size === 2) {
      const after = [...pointers.values()].map(({ now }) => now);
      const [old, middle] = [centre(before), centre(after)];
      react.pan(middle[0] - old[0], middle[1] - old[1]);
      react.zoom(apart(...after) / Math.max(apart(...before), 1), middle);
    }
  });

  const lift = (event) => {
    const pointer = pointers.get(event.pointerId);
    if (!pointer) return;
    pointers.delete(event.pointerId);
    if (pointers.size === 0) {
      ground.classList.remove("panning");
      if (event.type === "pointerup" && !moved) react.click(pointer.now);
    }
  };
  ground.addEventListener("pointerup", lift);
  ground.addEventListener("pointercancel", lift);

  ground.addEventListener(
    "wheel",
    (event) => {
      if (event.target.closest("form")) return;
      event.preventDefault();
      const pixels = event.deltaMode === 1 ? 20 * event.deltaY : event.deltaY;
      // A pinch on a touchpad comes as a wheel with Ctrl and small steps.
      const step = event.ctrlKey ? 0.01 : 0.0016;
      react.zoom(Math.exp(-Math.max(-300, Math.min(300, pixels)) * step), place(event));
    },
    { passive: false },
  );
}

const apart = (a, b) => Math.hypot(a[0] - b[0], a[1] - b[1]);
const centre = ([a, b]) => [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2];
