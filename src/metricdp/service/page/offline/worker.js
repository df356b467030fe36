// Keeps the page's files, so that it opens without a network. After the first visit nothing is asked of the server but,
// by the browser itself, whether this file has changed.

const NAME = "@NAME@";
const FILES = @FILES@;

self.addEventListener("install", (event) => {
  const keep = async () => {
    const cache = await caches.open(NAME);
    // Not from the browser's cache, which may hold files of an earlier export.
    await cache.addAll(FILES.map((path) => new Request(path, { cache: "reload" })));
    await self.skipWaiting();
  };
  event.waitUntil(keep());
});

self.addEventListener("activate", (event) => {
  const tidy = async () => {
    const others = (await caches.keys()).filter((name) => name.startsWith("metricdp-") && name !== NAME);
    await Promise.all(others.map((name) => caches.delete(name)));
    await self.clients.claim();
  };
  event.waitUntil(tidy());
});

self.addEventListener("fetch", (event) => {
  const answer = async () => (await (await caches.open(NAME)).match(event.request, { ignoreSearch: true })) ?? Response.error();
  event.respondWith(answer());
});
