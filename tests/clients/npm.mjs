// Calls of the npm clients, by name: node npm.mjs NAME URL. Ends with 0 where the call does what it promises. Copied beside node_modules.
import assert from "node:assert";

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, stepCountIs, streamText, tool } from "ai";
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const [name, url] = process.argv.slice(2);
const baseURL = url + "/v1";
const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });
const quire = createOpenAICompatible({ name: "quire", baseURL, supportsStructuredOutputs: true })("smol");
const prompt = "What is the capital of France?";
const asked = { model: "smol", messages: [{ role: "user", content: prompt }], temperature: 0, max_tokens: 100 };
const set = { model: quire, prompt, temperature: 0, maxOutputTokens: 100, maxRetries: 0 };
const City = z.object({ name: z.string().max(20), country: z.string().max(20) });
const Days = z.object({ city: z.enum(["Bern", "Oslo"]), days: z.number().int().min(1).max(9) });
const parameters = {
  type: "object", properties: { city: { enum: ["Bern", "Oslo"] } }, required: ["city"], additionalProperties: false,
};
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
    const { data } = await client.embeddings.create({ model: "smol", input: "one" });  // asks for base64 and decodes it
    assert.equal(data[0].embedding.length, 576);
  },
  async "openai errors"() {
    await assert.rejects(client.chat.completions.create({ ...asked, messages: [] }), OpenAI.BadRequestError);
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
