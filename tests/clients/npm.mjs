// Calls the npm clients by name: node npm.mjs NAME URL. Exits with 0 if the call does what it promises. The tests copy this file next to
// node_modules.
import assert from "node:assert";

import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import Anthropic from "@anthropic-ai/sdk";
import { generateObject, generateText, stepCountIs, streamText, tool } from "ai";
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const [name, url] = process.argv.slice(2);
const baseURL = url + "/v1";
const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: url, apiKey: "none", maxRetries: 0 });
const responses = createOpenAI({ baseURL, apiKey: "none" })("smol");  // uses /v1/responses
const quire = createOpenAICompatible({ name: "quire", baseURL, supportsStructuredOutputs: true })("smol");
const prompt = "What is the capital of France?";
const asked = { model: "smol", messages: [{ role: "user", content: prompt }], temperature: 0, max_tokens: 100 };
const set = { model: quire, prompt, temperature: 0, maxOutputTokens: 100, maxRetries: 0 };
const City = z.object({ name: z.string().max(20), country: z.string().max(20) });
const Days = z.object({ city: z.enum(["Bern", "Oslo"]), days: z.number().int().min(1).max(9) });
const parameters = {
  type: "object", properties: { city: { enum: ["Bern", "Oslo"] } }, required: ["city"], additionalProperties: false,
};
const message = { model: "smol", messages: asked.messages, max_tokens: 100 };
const tools = [{ type: "function", function: { name: "weather", description: "The weather", parameters } }];

const calls = {
  async "openai chat"() {
    assert.match((await client.chat.completions.create(asked)).choices[0].message.content, /Paris/);
  },
  async "openai stream"() {
    let text = "";
    for await (const chunk of await client.chat.completions.create({ ...asked, stream: true })) text += chunk.choices[0]?.delta?.content ?? "";
    assert.match(text, /Paris/);
  },
  async "openai stream helper"() {
    const stream = client.chat.completions.stream({ ...asked, stream_options: { include_usage: true } });
    let deltas = 0;
    stream.on("content.delta", () => deltas++);
    const whole = await stream.finalChatCompletion();
    assert.match(whole.choices[0].message.content, /Paris/);
    assert(deltas > 3);
  },
  async "openai tools"() {
    const { message } = (await client.chat.completions.create({ ...asked, tools, tool_choice: "required", parallel_tool_calls: false })).choices[0];
    assert.equal(message.tool_calls.length, 1);
    assert(["Bern", "Oslo"].includes(JSON.parse(message.tool_calls[0].function.arguments).city));
    const messages = [...asked.messages, message, { role: "tool", tool_call_id: message.tool_calls[0].id, content: "12 degrees" }];
    assert((await client.chat.completions.create({ ...asked, tools, messages, tool_choice: "none" })).choices[0].message.content);
  },
  async "openai parse"() {
    City.parse((await client.chat.completions.parse({ ...asked, response_format: zodResponseFormat(City, "city") })).choices[0].message.parsed);
  },
  async "openai completions"() {
    const { choices } = await client.completions.create({ model: "smol", prompt: "The capital of France is", max_tokens: 4, temperature: 0 });
    assert.match(choices[0].text, /Paris/);
  },
  async "openai embeddings"() {
    const { data } = await client.embeddings.create({ model: "smol", input: "one" });  // requests base64 and decodes it
    assert.equal(data[0].embedding.length, 576);
  },
  async "openai errors"() {
    await assert.rejects(client.chat.completions.create({ ...asked, messages: [] }), OpenAI.BadRequestError);
  },
  async "openai responses"() {
    const first = await client.responses.create({ model: "smol", input: prompt, temperature: 0, max_output_tokens: 100 });
    assert.match(first.output_text, /Paris/);
    const more = { model: "smol", input: "Are you sure?", previous_response_id: first.id, temperature: 0, max_output_tokens: 20 };
    let text = "";
    for await (const event of await client.responses.create({ ...more, stream: true })) {
      if (event.type === "response.output_text.delta") text += event.delta;
    }
    assert.equal(text, (await client.responses.create(more)).output_text);
  },
  async "openai responses stream helper, tools"() {
    const flat = tools.map(({ function: one }) => ({ type: "function", strict: true, ...one }));
    const stream = client.responses.stream({ model: "smol", input: prompt, tools: flat, tool_choice: "required", max_output_tokens: 100, temperature: 0 });
    const call = (await stream.finalResponse()).output.at(-1);
    assert(["Bern", "Oslo"].includes(JSON.parse(call.arguments).city));
  },
  async "@anthropic-ai/sdk messages"() {
    const answer = await anthropic.messages.create(message);
    assert.equal(answer.type, "message");
    const { input_tokens } = await anthropic.messages.countTokens({ model: "smol", messages: asked.messages });
    assert.equal(input_tokens, answer.usage.input_tokens + answer.usage.cache_read_input_tokens);
  },
  async "@anthropic-ai/sdk stream helper"() {
    let text = "";
    const stream = anthropic.messages.stream(message).on("text", (delta) => (text += delta));
    const whole = await stream.finalMessage();
    assert.equal(text, whole.content[0].text);
  },
  async "@anthropic-ai/sdk tools"() {
    const given = [{ name: "weather", description: "The weather", input_schema: parameters }];
    const { content, stop_reason } = await anthropic.messages.create({ ...message, tools: given, tool_choice: { type: "any" } });
    const call = content.at(-1);
    assert.equal(stop_reason, "tool_use");
    assert(["Bern", "Oslo"].includes(call.input.city));
    const result = [{ type: "tool_result", tool_use_id: call.id, content: "12 degrees" }];
    const messages = [...asked.messages, { role: "assistant", content }, { role: "user", content: result }];
    assert((await anthropic.messages.create({ ...message, messages, tools: given, tool_choice: { type: "none" } })).content[0].text);
  },
  async "@anthropic-ai/sdk errors"() {
    await assert.rejects(anthropic.messages.create({ ...message, model: "other" }), Anthropic.NotFoundError);
  },
  async "ai generateText, @ai-sdk/openai"() {
    assert.match((await generateText({ ...set, model: responses })).text, /Paris/);
  },
  async "ai tools, @ai-sdk/openai (names earlier items by their ids)"() {
    const called = [];
    const weather = tool({ description: "The weather", inputSchema: Days, execute: ({ city }) => (called.push(city), `12 degrees in ${city}`) });
    const { text } = await generateText({
      ...set, model: responses, tools: { weather }, stopWhen: stepCountIs(3),
      prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? "required" : "none" }),
    });
    assert(called.length && text);
  },
  async "ai generateText"() {
    assert.match((await generateText(set)).text, /Paris/);
  },
  async "ai streamText"() {
    let text = "";
    for await (const part of streamText(set).textStream) text += part;
    assert.match(text, /Paris/);
  },
  async "ai generateObject"() {
    City.parse((await generateObject({ ...set, schema: City })).object);
  },
  async "ai tools"() {
    const called = [];
    const weather = tool({ description: "The weather", inputSchema: Days, execute: ({ city }) => (called.push(city), `12 degrees in ${city}`) });
    const { text } = await generateText({
      ...set, tools: { weather }, stopWhen: stepCountIs(3),
      prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? "required" : "none" }),
    });
    assert(called.length && text);
  },
};

if (name === "--list") console.log(Object.keys(calls).join("\n"));
else await calls[name]();
