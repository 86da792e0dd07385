// Tests the conversion of Ollama's bodies to chats and completions; errors must name the fields that the client sent.
#include "server/api/ollama/ollama_request.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <string>
#include <utility>
#include <vector>

#include "server/request/object_reader.h"

namespace quire::ollama_request_test {
namespace {

namespace json = boost::json;

constexpr FieldApi kChat = FieldApi::ollama_chat, kGenerate = FieldApi::ollama_generate;
const std::string kHello = R"("messages":[{"role":"user","content":"hi"}])";
const std::string kPrompt = R"("prompt":"hi")";

struct Translated {
  Result<OllamaCall> call;
  std::vector<std::string> ignored;
};

Translated translate(FieldApi api, const std::string& fields, const OllamaModel& model = {}) {
  Translated out;
  out.call = call_of_ollama(parse_object(R"({"model":"m",)" + fields + "}").value(), api, model, out.ignored);
  return out;
}

json::value body_of(FieldApi api, const std::string& fields, const OllamaModel& model = {}) {
  auto translated = translate(api, fields, model);
  if (!translated.call) return json::value(translated.call.error().to_string());
  return std::move(translated.call->body);
}

// Returns the field of the error, also of an error that the reader of the translated body finds.
std::string refused_field_of(FieldApi api, const std::string& fields, const OllamaModel& model = {}) {
  auto call = translate(api, fields, model).call;
  if (!call) return call.error().field;
  const auto request = parse_completion_request(call->api, std::move(call->body), {.max_choices = 8, .vocab_size = 100});
  return request ? "none" : with_ollama_field_names(request.error(), api, call->option_names).field;
}

TEST(OllamaRequest, ConvertsAConversationWithToolsToAChat) {
  const json::value chat = body_of(kChat, R"("messages":[{"role":"system","content":"s"},{"role":"user","content":"hi"},
    {"role":"assistant","content":"","thinking":"hm","tool_calls":[{"function":{"name":"f","arguments":{"x":1}}}]},
    {"role":"tool","content":"4","tool_name":"f"}],"stream":false,
    "tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}])");
  EXPECT_EQ(chat, json::parse(R"({"stream":false,"messages":[{"role":"system","content":"s"},{"role":"user","content":"hi"},
    {"role":"assistant","content":"","reasoning_content":"hm","tool_calls":[{"type":"function","function":{"name":"f","arguments":{"x":1}}}]},
    {"role":"tool","content":"4","name":"f"}],
    "tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}]})"))
      << json::serialize(chat);
}

TEST(OllamaRequest, PutsImagesBeforeTheText) {
  const json::value chat = body_of(kChat, R"("messages":[{"role":"user","content":"what?","images":["QUJD"]}])");
  const json::array& parts = chat.at("messages").at(0).at("content").as_array();
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[0].at("image_url").at("url"), "data:image/*;base64,QUJD");
  EXPECT_EQ(parts[1].at("text"), "what?");
  EXPECT_EQ(body_of(kGenerate, R"("prompt":"what?","images":["QUJD"])").at("messages").at(0).at("content").as_array().size(), 2U);
  EXPECT_EQ(refused_field_of(kChat, R"("messages":[{"role":"user","images":["QUJD"]}])", {.supports_images = false}), "messages[0].images");
  EXPECT_EQ(refused_field_of(kGenerate, R"("prompt":"a","images":[7])"), "images[0]");
}

TEST(OllamaRequest, ContinuesAnAnswerThatIsTheLastMessage) {
  const json::value chat = body_of(kChat, R"("messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"The"}])");
  EXPECT_EQ(chat.at("continue_final_message"), true);
  EXPECT_EQ(chat.at("add_generation_prompt"), false);
  EXPECT_FALSE(body_of(kChat, kHello).as_object().contains("continue_final_message"));
}

TEST(OllamaRequest, RendersAPromptUnlessItIsRawOrHasASuffix) {
  EXPECT_EQ(body_of(kGenerate, R"("prompt":"hi","system":"s")"),
            json::parse(R"({"stream":true,"messages":[{"role":"system","content":"s"},{"role":"user","content":"hi"}]})"));
  EXPECT_EQ(body_of(kGenerate, R"("prompt":"hi","raw":true,"logprobs":true,"top_logprobs":2)"),
            json::parse(R"({"stream":true,"prompt":"hi","logprobs":2})"));
  EXPECT_EQ(body_of(kGenerate, R"("prompt":"a","suffix":"b")"), json::parse(R"({"stream":true,"prompt":"a","suffix":"b"})"));
  EXPECT_EQ(body_of(kGenerate, kPrompt, {.has_template = false}), json::parse(R"({"stream":true,"prompt":"hi"})"));
  EXPECT_EQ(translate(kGenerate, kPrompt, {.has_template = false}).call->api, Api::completion);
  EXPECT_EQ(translate(kGenerate, kPrompt).call->api, Api::chat);
}

TEST(OllamaRequest, RecognizesBodiesThatOnlyLoadTheModel) {
  for (const auto& [api, fields] :
       {std::pair(kChat, R"("messages":[])"), std::pair(kChat, R"("stream":true)"), std::pair(kGenerate, R"("prompt":"")")}) {
    const auto call = translate(api, fields).call;
    ASSERT_TRUE(call.has_value()) << fields;
    EXPECT_TRUE(call->is_load && !call->is_unload) << fields;
  }
  for (const char* zero : {"0", "\"0\"", "\"0s\"", "0.0"})
    EXPECT_TRUE(translate(kChat, std::string(R"("messages":[],"keep_alive":)") + zero).call->is_unload) << zero;
  for (const char* other : {"-1", "\"5m\"", "\"1h30m\"", "300", "null"})
    EXPECT_FALSE(translate(kChat, std::string(R"("messages":[],"keep_alive":)") + other).call->is_unload) << other;
  EXPECT_FALSE(translate(kChat, kHello).call->is_load);
}

TEST(OllamaRequest, ConvertsOptionsToFieldsOfAChat) {
  const std::pair<std::string, std::string> cases[] = {
      {R"({"temperature":0.5,"top_k":3,"top_p":0.5,"min_p":0.25,"stop":["a"]})",
       R"({"temperature":0.5,"top_k":3,"top_p":0.5,"min_p":0.25,"stop":["a"]})"},
      {R"({"seed":7})", R"({"seed":7})"},
      {R"({"seed":-1})", "{}"},
      {R"({"num_predict":9})", R"({"num_predict":9})"},
      {R"({"repeat_penalty":1.5})", R"({"repetition_penalty":1.5})"},
      {R"({"repeat_penalty":1.5,"repeat_last_n":-1})", R"({"repetition_penalty":1.5})"},
      {R"({"repeat_last_n":64})", "{}"},
      {R"({"repeat_penalty":1.0,"repeat_last_n":64,"presence_penalty":0})", R"({"repetition_penalty":1.0,"presence_penalty":0})"},
      {R"({"repeat_penalty":1.5,"presence_penalty":1,"repeat_last_n":0})",
       R"({"repetition_penalty":1,"presence_penalty":0,"frequency_penalty":0})"},
      {R"({"typical_p":1.0,"mirostat":0,"tfs_z":1,"penalize_newline":true})", "{}"},
  };
  for (const auto& [options, wanted] : cases) {
    json::value expected = json::parse(wanted);
    expected.as_object().insert({{"stream", true}, {"messages", json::parse(R"([{"role":"user","content":"hi"}])")}});
    EXPECT_EQ(body_of(kChat, kHello + R"(,"options":)" + options), expected) << options;
    EXPECT_EQ(body_of(kGenerate, kPrompt + R"(,"options":)" + options), expected) << options;
  }
}

TEST(OllamaRequest, NamesTheOptionInErrors) {
  const std::pair<std::string, std::string> cases[] = {
      {R"("options":{"temperature":"hot"})", "options.temperature"},
      {R"("options":{"temperature":3})", "options.temperature"},
      {R"("temperature":3)", "temperature"},
      {R"("options":{"num_predict":0})", "options.num_predict"},
      {R"("options":{"repeat_penalty":0})", "options.repeat_penalty"},
      {R"("options":{"repeat_penalty":1.1,"repeat_last_n":64})", "options.repeat_last_n"},
      {R"("options":{"frequency_penalty":1},"repeat_last_n":64)", "repeat_last_n"},
      {R"("options":{"repeat_penalty":1.1,"repetition_penalty":1.2})", "repetition_penalty"},
      {R"("options":{"typical_p":0.5})", "options.typical_p"},
      {R"("options":{"penalize_newline":false})", "options.penalize_newline"},
      {R"("options":{"num_ctx":4097})", "options.num_ctx"},
      {R"("options":{"temprature":1})", "options.temprature"},
      {R"("options":{"seed":1},"seed":2)", "seed"},
      {R"("options":[1])", "options"},
      {R"("keep_alive":"soon")", "keep_alive"},
      {R"("think":"hard")", "think"},
      {R"("template":"{{ .Prompt }}")", "template"},
      {R"("context":[1,2])", "context"},
      {R"("format":"xml")", "format"},
  };
  for (const auto& [fields, field] : cases) {
    EXPECT_EQ(refused_field_of(kChat, kHello + "," + fields, {.context = 4096}), field) << fields;
    EXPECT_EQ(refused_field_of(kGenerate, kPrompt + "," + fields, {.context = 4096}), field) << fields;
  }
  EXPECT_EQ(refused_field_of(kChat, R"("messages":[{"role":"boss","content":"a"}])"), "messages[0].role");
  EXPECT_EQ(refused_field_of(kChat, R"("messages":[{"role":"assistant","tool_calls":[{"function":{}}]}])"), "messages[0].tool_calls");
  EXPECT_EQ(refused_field_of(kChat, kHello + R"(,"suffix":"b")"), "suffix");
  EXPECT_EQ(refused_field_of(kGenerate, kPrompt + R"(,"tools":[{"type":"function"}])"), "tools");
  EXPECT_EQ(refused_field_of(kGenerate, R"("prompt":"a","raw":true,"system":"s")"), "system");
  EXPECT_EQ(refused_field_of(kGenerate, R"("prompt":"a","raw":true,"think":true)"), "think");
  EXPECT_EQ(refused_field_of(kGenerate, R"("prompt":"a","raw":true,"top_logprobs":2)"), "top_logprobs");
}

TEST(OllamaRequest, TurnsThinkingOnAndOff) {
  EXPECT_EQ(body_of(kChat, kHello + R"(,"think":false)").at("enable_thinking"), false);
  EXPECT_EQ(body_of(kGenerate, kPrompt + R"(,"think":true)").at("enable_thinking"), true);
  const json::value high = body_of(kChat, kHello + R"(,"think":"high")");
  EXPECT_EQ(high.at("enable_thinking"), true);
  EXPECT_EQ(high.at("reasoning_effort"), "high");
  EXPECT_EQ(body_of(kChat, kHello + R"(,"think":true)", {.thinks = false}), "\"m\" does not support thinking; leave out think");
  EXPECT_EQ(body_of(kChat, kHello + R"(,"think":false)", {.thinks = false}).at("enable_thinking"), false);
  const auto level = translate(kChat, kHello + R"(,"think":"low")", {.reads_effort = false});
  EXPECT_FALSE(level.call->body.contains("reasoning_effort"));
  EXPECT_EQ(level.ignored, std::vector<std::string>{"think:low"});
}

TEST(OllamaRequest, ReportsFieldsWithoutEffect) {
  const auto translated = translate(kChat, R"("messages":[{"role":"user","content":"hi","mood":"good"}],"keep_alive":"5m","truncate":true,
    "options":{"num_ctx":2048,"num_thread":4,"use_mmap":true,"xyzzy":1})",
                                    {.context = 4096});
  ASSERT_TRUE(translated.call.has_value()) << translated.call.error().to_string();
  EXPECT_EQ(translated.ignored, (std::vector<std::string>{"options.num_ctx", "options.num_thread", "options.use_mmap", "options.xyzzy",
                                                          "messages[0].mood", "keep_alive", "truncate"}));
}

TEST(OllamaRequest, ForbidsPropertiesThatAFormatDoesNotList) {
  const std::pair<std::string, std::string> cases[] = {
      {R"({"properties":{"a":{"items":{"properties":{"b":{}}}}},"$defs":{"c":{"anyOf":[{"properties":{}},{"type":"null"}]}}})",
       R"({"properties":{"a":{"items":{"properties":{"b":{}},"additionalProperties":false}}},
           "$defs":{"c":{"anyOf":[{"properties":{},"additionalProperties":false},{"type":"null"}]}},"additionalProperties":false})"},
      {R"({"properties":{},"additionalProperties":{"type":"string"}})", R"({"properties":{},"additionalProperties":{"type":"string"}})"},
      {R"({"properties":{},"allOf":[{"properties":{}}]})", R"({"properties":{},"allOf":[{"properties":{}}]})"},
      {R"({"properties":{"a":{"allOf":[{"properties":{}},{"properties":{}}]}}})",
       R"({"properties":{"a":{"allOf":[{"properties":{}},{"properties":{}}]}}})"},
      {R"({"$ref":"#/$defs/a","$defs":{"a":{"properties":{}}}})",
       R"({"$ref":"#/$defs/a","$defs":{"a":{"properties":{},"additionalProperties":false}}})"},
      {R"({"type":"object"})", R"({"type":"object"})"},
      {R"("json")", R"("json")"},
  };
  for (const auto& [sent, read] : cases) EXPECT_EQ(body_of(kChat, kHello + R"(,"format":)" + sent).at("format"), json::parse(read)) << sent;
}

TEST(OllamaRequest, RequiresAModel) {
  std::vector<std::string> ignored;
  const auto call = call_of_ollama(parse_object("{" + kHello + "}").value(), kChat, {}, ignored);
  ASSERT_FALSE(call.has_value());
  EXPECT_EQ(call.error().field, "model");
}

}  // namespace
}  // namespace quire::ollama_request_test
