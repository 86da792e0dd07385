// Requests to the server, and the events of its streams.

// An error that the server reports; `message` is its text.
class ServerError extends Error {
  constructor(message, status) { super(message); this.status = status; }
}

async function failure(response) {
  let message = `${response.status} ${response.statusText}`.trim();
  try { message = (await response.json()).error.message || message; } catch { /* The body is not JSON. */ }
  return new ServerError(message, response.status);
}

async function send(path, options = {}) {
  let response;
  try { response = await fetch(path, {...options, headers: {...options.headers, ...headers()}}); }
  catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError("The server does not respond. Check that it runs, then retry.", 0);
  }
  if (!response.ok) throw await failure(response);
  return response;
}

// Yields the events of a stream. Throws if an event is an error, or if the stream ends before its last event.
async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "", isDone = false;
  const take = function* (lines) {
    for (const line of lines) {
      if (!line.startsWith("data:")) continue;
      const data = line.slice(5).trim();
      if (data === "[DONE]") { isDone = true; continue; }
      const event = JSON.parse(data);
      if (event.error) throw new ServerError(event.error.message, event.error.code);
      yield event;
    }
  };
  for (;;) {
    let chunk;
    try { chunk = await reader.read(); }
    catch (error) {
      if (error.name === "AbortError") throw error;
      break;
    }
    if (chunk.done) break;
    const lines = (rest + chunk.value).split(/\r?\n/);
    rest = lines.pop();
    yield* take(lines);
  }
  if (!isDone) throw new ServerError("The connection ended before the answer was complete.", 0);
}

// Returns the models of the server: [{id, inputs, context}].
async function models() {
  const {data} = await (await send("v1/models")).json();
  return data.map(card => ({id: card.id, inputs: card.input_modalities ?? ["text"], context: card.max_model_len}));
}

const chatMessages = (system, messages) => [
  ...(system.trim() ? [{role: "system", content: system}] : []),
  ...messages.map(message => ({role: message.role, content: message.role === "user" ? contentOf(message) : message.text}))];

// Yields {text, thoughts, calls, finish, usage}: changes of an answer to the messages. The server makes the id a part of the answer's id.
async function* answerTo(messages, settings, {signal, id}) {
  const body = {messages: chatMessages(settings.system, messages), stream: true,
                stream_options: {include_usage: true, continuous_usage_stats: true}, ...settingFields(settings)};
  const response = await send("v1/chat/completions", {method: "POST", headers: {"Content-Type": "application/json", "X-Request-Id": id}, signal, body: JSON.stringify(body)});
  for await (const event of eventsOf(response)) {
    const choice = event.choices?.[0], delta = choice?.delta ?? {};
    yield {text: delta.content ?? "", thoughts: delta.reasoning_content ?? delta.reasoning ?? "", calls: delta.tool_calls ?? [],
           finish: choice?.finish_reason ?? null, usage: event.usage ?? null};
  }
}

// Yields the changes of a transcript of an audio file. The user's text is the prompt: the spelling of names, for example.
async function* transcriptOf(file, prompt, settings, {signal, id}) {
  const form = new FormData();
  form.append("file", file);
  form.append("stream", "true");
  if (prompt) form.append("prompt", prompt);
  if (settings.model) form.append("model", settings.model);
  if (settings.temperature !== "") form.append("temperature", settings.temperature);
  const response = await send("v1/audio/transcriptions", {method: "POST", headers: {"X-Request-Id": id}, signal, body: form});
  for await (const event of eventsOf(response))
    yield {text: event.type === "transcript.text.delta" ? event.delta : "", thoughts: "", calls: [],
           finish: event.type === "transcript.text.done" ? "stop" : null, usage: null};
}
