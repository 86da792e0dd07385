// Reports how much of a prompt the server has computed, from GET /v1/watch. Only operators may read this route: it is asked from the server's
// machine, or with a key. For other users the page shows the elapsed time.
const WATCH_AFTER_MS = 1000, WATCH_PERIOD_MS = 500;
const watch = {isRefused: false};

const mayWatch = () => !watch.isRefused && (/^(?:localhost|127\.|\[::1\])/.test(location.hostname) || !!session.getItem(API_KEY));

// Returns {text, done, total} of the request whose name contains the id, or null. `frame` is the answer of the route.
function promptState(frame, id) {
  const column = name => frame.request_fields.indexOf(name);
  const row = frame.requests?.find(one => one[column("name")].includes(id));
  if (!row) return null;
  const state = row[column("state")], done = row[column("computed_tokens")], total = row[column("prompt_tokens")];
  if (state === "prefill") return {text: `Reading the prompt: ${whole(done)} of ${whole(total)} tokens`, done, total};
  return {text: state === "loading" ? "Loading cached blocks of the prompt" : state === "decode" ? "Writing" : "In the server's queue", done: 0, total: 0};
}

// Keeps run.prompt up to date until the first token.
async function watchPrompt(run) {
  const pause = ms => new Promise(resolve => setTimeout(resolve, ms));
  await pause(WATCH_AFTER_MS);
  for (let since = 0; chat.running === run && !run.first && mayWatch();) {
    try {
      const frame = await (await send(`v1/watch?since=${since}`, {signal: run.controller.signal})).json();
      since = frame.frame;
      if (frame.requests) run.prompt = promptState(frame, run.id);
    } catch (error) {
      if (error.name !== "AbortError") watch.isRefused = true;
    }
    await pause(WATCH_PERIOD_MS);
  }
}
