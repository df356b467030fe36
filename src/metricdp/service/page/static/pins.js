// The two places a person can move, as buttons on the map.

const KEYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

/**
 * Let a pin be dragged and moved by keys.
 *
 * @param {HTMLButtonElement} pin
 * @param {HTMLElement} ground
 * @param {{drag: (place) => void, step: (direction, large) => void, key: (key) => boolean, choose: () => void}} react
 */
export function movable(pin, ground, react) {
  let grip = null;

  const place = (event) => {
    const frame = ground.getBoundingClientRect();
    return [event.clientX - frame.left, event.clientY - frame.top];
  };

  pin.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    event.stopPropagation();
    pin.setPointerCapture(event.pointerId);
    const frame = pin.getBoundingClientRect();
    const [left, top] = place(event);
    const map = ground.getBoundingClientRect();
    // Where the pin was taken hold of, so that it does not jump under the pointer.
    grip = [left - (frame.left + frame.width / 2 - map.left), top - (frame.top + frame.height / 2 - map.top)];
    pin.classList.add("held");
    react.choose();
  });
  pin.addEventListener("pointermove", (event) => {
    if (!grip) return;
    const [left, top] = place(event);
    react.drag([left - grip[0], top - grip[1]]);
  });
  const drop = () => {
    grip = null;
    pin.classList.remove("held");
  };
  pin.addEventListener("pointerup", drop);
  pin.addEventListener("pointercancel", drop);
  pin.addEventListener("focus", () => react.choose());
  pin.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key in KEYS) react.step(KEYS[event.key], event.shiftKey);
    else if (!react.key(event.key)) return;
    event.preventDefault();
  });
}
