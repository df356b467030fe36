// Where the true position comes from: the browser asks for the extension itself, never for a page.

import { api } from "./settings.js";

const OPTIONS = { enableHighAccuracy: true, maximumAge: 0, timeout: 30_000 };
const PAGE = "src/locator.html";

/** Ask the browser in this context; null if it does not know. */
export const here = () =>
  new Promise((resolve) => {
    navigator.geolocation.getCurrentPosition(
      ({ coords }) => resolve({ lon: coords.longitude, lat: coords.latitude }),
      () => resolve(null),
      OPTIONS,
    );
  });

/** Ask the browser: here, or where that is impossible (a service worker of Chromium) in a document off screen. */
export async function locate() {
  if (navigator.geolocation) return here();
  const open = await api.offscreen.hasDocument();
  if (!open) {
    const justification = "Asks the browser for the position from which a report is drawn.";
    await api.offscreen.createDocument({ url: PAGE, reasons: ["GEOLOCATION"], justification });
  }
  try {
    return await api.runtime.sendMessage({ ask: "here" });
  } finally {
    if (!open) await api.offscreen.closeDocument();
  }
}
