// Has the browser keep the page for when there is no network. Without a service worker it works as long as it is open.

navigator.serviceWorker?.register("worker.js").catch(() => {});
