// At most one request under way; of those that wait, only the latest is sent.

/**
 * Wrap `work` so that while it is busy only the newest question waits: a drag asks as fast as answers come back, and
 * no answer can overtake another. `pause` milliseconds lie between two questions at least.
 */
export function latest(work, pause = 0) {
  let waiting = null;
  let busy = false;
  return async (question) => {
    waiting = { question };
    if (busy) return;
    busy = true;
    try {
      while (waiting) {
        const { question: next } = waiting;
        waiting = null;
        await work(next);
        if (waiting && pause) await new Promise((resolve) => setTimeout(resolve, pause));
      }
    } finally {
      busy = false;
    }
  };
}
