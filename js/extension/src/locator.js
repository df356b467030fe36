// The document off screen that asks for the position in Chromium.

import { here } from "./locate.js";
import { api } from "./settings.js";

api.runtime.onMessage.addListener((message, sender, respond) => {
  // Only the service worker asks: content scripts have a tab.
  if (message?.ask !== "here" || sender.tab) return;
  here().then(respond);
  return true;
});
