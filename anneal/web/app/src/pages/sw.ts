// Keeps the page's files, so that it opens without a network: from the store first, if the network does not answer.
const STORE = "anneal-page";

self.addEventListener("fetch", (event) => {
  const e = event as unknown as { request: Request; respondWith(answer: Promise<Response>): void };
  if (e.request.method !== "GET" || new URL(e.request.url).origin !== location.origin) return;
  e.respondWith(
    caches.open(STORE).then(async (store) => {
      try {
        const answer = await fetch(e.request);
        if (answer.ok) await store.put(e.request, answer.clone());
        return answer;
      } catch (error) {
        const kept = await store.match(e.request, { ignoreSearch: true });
        if (kept) return kept;
        throw error;
      }
    }),
  );
});
