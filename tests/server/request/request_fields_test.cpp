// Tests which fields each generating API supports, ignores and refuses.
#include "server/request/request_fields.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "server/api/anthropic/messages_request.h"
#include "server/api/ollama/ollama_request.h"
#include "server/api/responses/responses_request.h"
#include "server/request/completion_request.h"
#include "server/request/object_reader.h"

namespace quire::request_fields_test {
namespace {

namespace json = boost::json;

constexpr RequestLimits kLimits{.max_choices = 8, .vocab_size = 100};
constexpr FieldApi kApis[] = {FieldApi::completion, FieldApi::chat,        FieldApi::responses,
                              FieldApi::messages,   FieldApi::ollama_chat, FieldApi::ollama_generate};
static_assert(std::size(kApis) == kNumFieldApis);

json::object plain_body(FieldApi api) {
  switch (api) {
    case FieldApi::completion:
      return {{"prompt", "hi"}};
    case FieldApi::responses:
      return {{"input", "hi"}, {"model", "m"}};
    case FieldApi::ollama_generate:
      return {{"prompt", "hi"}, {"model", "m"}, {"max_tokens", 5}};
    case FieldApi::chat:
    case FieldApi::messages:
    case FieldApi::ollama_chat:
      break;
  }
  return {{"messages", json::array{json::object{{"role", "user"}, {"content", "hi"}}}}, {"model", "m"}, {"max_tokens", 5}};
}

// Reads the body as the API's route does.
Result<CompletionRequest> read_body(FieldApi api, json::object body) {
  std::vector<std::string> ignored;
  Result<CompletionRequest> request = CompletionRequest();
  if (api == FieldApi::completion || api == FieldApi::chat)
    return parse_completion_request(api == FieldApi::chat ? Api::chat : Api::completion, std::move(body), kLimits);
  if (api == FieldApi::ollama_chat || api == FieldApi::ollama_generate) {
    auto call = call_of_ollama(std::move(body), api, {}, ignored);
    if (!call) return std::unexpected(call.error());
    request = parse_completion_request(call->api, std::move(call->body), kLimits);
    if (!request) return std::unexpected(with_ollama_field_names(request.error(), api, call->option_names));
    request->ignored.insert(request->ignored.begin(), ignored.begin(), ignored.end());
    return request;
  }
  json::object chat;
  if (api == FieldApi::responses) {
    ResponseStore store(1 << 20);
    auto translated = chat_of_response(std::move(body), {store, "t"}, ignored);
    if (!translated) return std::unexpected(translated.error());
    chat = std::move(translated->chat);
  } else {
    auto translated = chat_of_messages(std::move(body), {}, ignored);
    if (!translated) return std::unexpected(translated.error());
    chat = std::move(translated->chat);
  }
  request = parse_completion_request(Api::chat, std::move(chat), kLimits);
  if (request) request->ignored.insert(request->ignored.begin(), ignored.begin(), ignored.end());
  return request;
}

Result<CompletionRequest> with(FieldApi api, std::string_view name, json::value value) {
  json::object body = plain_body(api);
  body.insert_or_assign(name, std::move(value));
  return read_body(api, std::move(body));
}

bool is_named(const CompletionRequest& request, std::string_view name) {
  return std::ranges::any_of(request.ignored,
                             [&](const std::string& field) { return field == name || field.starts_with(std::string(name) + "."); });
}

std::string at(FieldApi api, std::string_view name) {
  return std::string(name) + " of API " + std::to_string(static_cast<int>(api));
}

TEST(RequestFields, TreatsEachFieldAsTheTableSays) {
  const json::value odd = json::parse(R"([[{"odd": [7]}]])");
  for (const RequestField& field : request_fields()) {
    for (const FieldApi api : kApis) {
      const auto request = with(api, field.name, odd);
      switch (field.use(api)) {
        case FieldUse::ignored:
          ASSERT_TRUE(request.has_value()) << at(api, field.name) << ": " << request.error().to_string();
          EXPECT_TRUE(is_named(*request, field.name)) << at(api, field.name);
          break;
        case FieldUse::refused:
          ASSERT_FALSE(request.has_value()) << at(api, field.name);
          EXPECT_EQ(request.error().field, field.name);
          EXPECT_EQ(request.error().code, ErrorCode::unsupported) << at(api, field.name);
          EXPECT_FALSE(request.error().remedy.empty());
          break;
        case FieldUse::read:
        case FieldUse::passed:
        case FieldUse::renamed:
          // A field that no reader reads is reported as ignored. A part of metadata is read and the rest is reported.
          if (field.name == "metadata") break;
          if (request.has_value()) EXPECT_FALSE(is_named(*request, field.name)) << at(api, field.name);
      }
    }
  }
}

TEST(RequestFields, AcceptsNeutralValuesOfEachField) {
  for (const RequestField& field : request_fields()) {
    json::array values = json::parse("[" + std::string(field.neutral) + "]").as_array();
    for (const char* always : {"null", "\"\"", "[]", "{}"})
      if (field.use(FieldApi::messages) == FieldUse::refused) values.push_back(json::parse(always));
    for (const json::value& value : values) {
      for (const FieldApi api : kApis) {
        if (field.use(api) != FieldUse::refused && field.use(api) != FieldUse::renamed) continue;
        if (field.use(api) == FieldUse::renamed && value.is_structured()) continue;
        const auto request = with(api, field.name, value);
        ASSERT_TRUE(request.has_value()) << at(api, field.name) << ": " << request.error().to_string();
        EXPECT_TRUE(request->ignored.empty()) << at(api, field.name);
      }
    }
  }
}

TEST(RequestFields, AppliesStructuredOutputsInEveryApi) {
  const std::pair<const char*, const char*> forms[] = {
      {"guided_json", R"({"type": "object"})"},
      {"guided_regex", R"("[0-9]+")"},
      {"guided_choice", R"(["a", "b"])"},
      {"guided_grammar", R"("start: \"a\"")"},
      {"guided_json_object", "true"},
      {"structured_outputs", R"({"regex": "a+"})"},
      {"json_schema", R"({"type": "array"})"},
      {"json_schema", R"("{\"type\": \"array\"}")"},
      {"grammar", R"("root ::= \"yes\" | \"no\"")"},
      {"ebnf", R"("root ::= [a-z]+")"},
      {"regex", R"("[a-z]+")"},
      {"json_mode", "true"},
      {"format", R"("json")"},
      {"format", R"({"type": "object", "properties": {}})"},
  };
  for (const auto& [name, value] : forms) {
    for (const FieldApi api : kApis) {
      const auto request = with(api, name, json::parse(value));
      ASSERT_TRUE(request.has_value()) << at(api, name) << ": " << request.error().to_string();
      EXPECT_TRUE(request->form.has_value()) << at(api, name);
      EXPECT_TRUE(request->ignored.empty()) << at(api, name);
    }
  }
  for (const char* name :
       {"guided_json", "guided_regex", "guided_choice", "guided_grammar", "json_schema", "grammar", "ebnf", "regex", "format"})
    for (const FieldApi api : kApis) {
      const auto request = with(api, name, "");
      ASSERT_TRUE(request.has_value()) << at(api, name) << ": " << request.error().to_string();
      EXPECT_FALSE(request->form.has_value()) << at(api, name);
    }
  const auto both =
      with(FieldApi::chat, "response_format", json::parse(R"({"type": "json_object", "schema": {"type": "object", "required": ["a"]}})"));
  ASSERT_TRUE(both.has_value()) << both.error().to_string();
  EXPECT_TRUE(both->form->wanted.text.contains("required"));
  const auto old = with(FieldApi::messages, "output_format", json::parse(R"({"type": "json_schema", "schema": {"type": "object"}})"));
  ASSERT_TRUE(old.has_value()) << old.error().to_string();
  EXPECT_TRUE(old->form.has_value());
}

TEST(RequestFields, ReadsSamplingFieldsInEveryApi) {
  for (const FieldApi api : kApis) {
    json::object body = plain_body(api);
    for (const auto& [name, value] :
         json::parse(R"({"seed": 7, "min_p": 0.25, "top_k": 3, "repetition_penalty": 1.5, "presence_penalty": 0.5,
           "frequency_penalty": 0.25, "stop_token_ids": [4], "allowed_token_ids": [4, 5], "bad_words": ["no"], "logit_bias": {"4": 2},
           "min_tokens": 2, "ignore_eos": true})")
             .as_object())
      body.insert_or_assign(name, value);
    const auto request = read_body(api, std::move(body));
    ASSERT_TRUE(request.has_value()) << request.error().to_string();
    const SamplingParams& sampling = request->sampling;
    EXPECT_EQ(sampling.seed, 7U);
    EXPECT_EQ(sampling.min_p, 0.25F);
    EXPECT_EQ(sampling.top_k, 3);
    EXPECT_EQ(sampling.repetition_penalty, 1.5F);
    EXPECT_EQ(sampling.presence_penalty, 0.5F);
    EXPECT_EQ(sampling.frequency_penalty, 0.25F);
    EXPECT_EQ(sampling.stop_token_ids, std::vector<TokenId>{4});
    EXPECT_EQ(sampling.allowed_token_ids, (std::vector<TokenId>{4, 5}));
    EXPECT_EQ(sampling.logit_bias.size(), 1U);
    EXPECT_EQ(sampling.min_tokens, 2U);
    EXPECT_TRUE(sampling.ignore_eos);
    EXPECT_EQ(request->bad_words, std::vector<std::string>{"no"});
    EXPECT_TRUE(request->ignored.empty());
  }
}

TEST(RequestFields, ReadsAliasesAsTheirFields) {
  for (const FieldApi api : {FieldApi::completion, FieldApi::chat, FieldApi::responses}) {
    const auto stops = with(api, "stop_sequences", json::array{"END"});
    ASSERT_TRUE(stops.has_value()) << stops.error().to_string();
    EXPECT_EQ(stops->stop, std::vector<std::string>{"END"});
    EXPECT_EQ(with(api, "random_seed", 9)->sampling.seed, 9U);
    EXPECT_EQ(with(api, "min_new_tokens", 3)->sampling.min_tokens, 3U);
    EXPECT_TRUE(with(api, "no_stop_trim", true)->include_stop);
  }
  for (const char* name : {"max_new_tokens", "n_predict", "num_predict", "max_output_tokens", "max_completion_tokens"})
    EXPECT_EQ(with(FieldApi::completion, name, 3)->max_tokens, 3U) << name;
  EXPECT_EQ(with(FieldApi::responses, "n_predict", 3)->max_tokens, 3U);
  EXPECT_EQ(with(FieldApi::completion, "n_predict", -1)->max_tokens, 16U) << "-1 selects the default";
}

TEST(RequestFields, NamesTheAliasInErrors) {
  const auto wrong = with(FieldApi::completion, "max_new_tokens", "many");
  ASSERT_FALSE(wrong.has_value());
  EXPECT_EQ(wrong.error().field, "max_new_tokens");
  for (const FieldApi api : {FieldApi::chat, FieldApi::messages}) {
    const auto twice = with(api, "max_new_tokens", 7);
    ASSERT_FALSE(twice.has_value()) << "max_tokens is 5";
    EXPECT_EQ(twice.error().field, "max_new_tokens");
  }
  EXPECT_TRUE(with(FieldApi::chat, "max_new_tokens", 5).has_value()) << "the values are equal";
}

TEST(RequestFields, TurnsReasoningOnAndOffByEveryAlias) {
  const std::pair<const char*, const char*> off[] = {{"enable_thinking", "false"},
                                                     {"think", "false"},
                                                     {"thinking", R"({"type": "disabled"})"},
                                                     {"thinking", "false"},
                                                     {"reasoning", R"({"enabled": false})"},
                                                     {"reasoning", R"({"effort": "none"})"},
                                                     {"chat_template_kwargs", R"({"enable_thinking": false})"}};
  for (const auto& [name, value] : off) {
    const auto request = with(FieldApi::chat, name, json::parse(value));
    ASSERT_TRUE(request.has_value()) << name << request.error().to_string();
    EXPECT_EQ(request->chat.template_kwargs.at("enable_thinking"), false) << name;
  }
  for (const FieldApi api : {FieldApi::responses, FieldApi::messages}) {
    const auto request = with(api, "enable_thinking", true);
    ASSERT_TRUE(request.has_value()) << request.error().to_string();
    EXPECT_EQ(request->chat.template_kwargs.at("enable_thinking"), true);
  }
  const auto effort = with(FieldApi::chat, "reasoning", json::parse(R"({"effort": "low", "exclude": true})"));
  EXPECT_EQ(effort->chat.template_kwargs.at("reasoning_effort"), "low");
  EXPECT_FALSE(effort->includes_reasoning);
  EXPECT_EQ(with(FieldApi::chat, "reasoning", json::parse(R"({"max_tokens": 5})")).error().field, "reasoning.max_tokens");
}

TEST(RequestFields, RefusesAnUnsupportedFieldAfterManyUnknownFields) {
  for (const FieldApi api : kApis) {
    json::object body = plain_body(api);
    for (int i = 0; i < 40; ++i) body.emplace("zzzzzzzzzzzzzzzzz" + std::to_string(i), i);
    body.emplace("typical_p", 0.5);
    const auto request = read_body(api, std::move(body));
    ASSERT_FALSE(request.has_value());
    EXPECT_EQ(request.error().field, "typical_p");
  }
}

TEST(RequestFields, RecognizesMisspeltFieldsButNotOtherVendorsFields) {
  const std::vector<std::string_view> known = fields_read_by(FieldApi::chat);
  const std::pair<const char*, const char*> slips[] = {{"temprature", "temperature"},
                                                       {"max_token", "max_tokens"},
                                                       {"maxTokens", "max_tokens"},
                                                       {"topP", "top_p"},
                                                       {"topk", "top_k"},
                                                       {"stop-sequences", "stop_sequences"},
                                                       {"respones_format", "response_format"}};
  for (const auto& [name, field] : slips) {
    EXPECT_EQ(misspelt_field(name, known), field) << name;
    const auto request = with(FieldApi::chat, name, 1);
    ASSERT_FALSE(request.has_value()) << name;
    EXPECT_EQ(request.error().field, name);
    EXPECT_TRUE(request.error().remedy.contains(field)) << request.error().remedy;
  }
  for (const char* real : {"models", "reasoning_split", "n_keep", "prompt_cache_options", "repetition_penalty_range", "mirostat_tau",
                           "xyzzy", "stem", "toplevel", "modem"}) {
    const auto request = with(FieldApi::chat, real, 1);
    ASSERT_TRUE(request.has_value()) << request.error().to_string();
    EXPECT_TRUE(is_named(*request, real)) << real;
  }
}

TEST(RequestFields, ReadsToolsOfOtherFormatsAsChatTools) {
  for (const char* tool : {R"({"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": true})",
                           R"({"name": "f", "description": "d", "input_schema": {"type": "object"}, "strict": true})"}) {
    const auto request = with(FieldApi::chat, "tools", json::array{json::parse(tool)});
    ASSERT_TRUE(request.has_value()) << request.error().to_string();
    ASSERT_EQ(request->tool_use.tools.size(), 1U);
    EXPECT_EQ(request->tool_use.tools.front().name, "f");
    EXPECT_TRUE(request->tool_use.tools.front().strict);
    EXPECT_EQ(request->chat.tools.as_array().front(), json::parse(R"({"type": "function",
                              "function": {"name": "f", "description": "d", "parameters": {"type": "object"}, "strict": true}})"));
  }
  EXPECT_EQ(with(FieldApi::chat, "tools", json::parse(R"([{"type": "function"}])")).error().field, "tools[0].function");
  EXPECT_TRUE(with(FieldApi::chat, "tool_choice", "f").error().remedy.contains(R"({"type": "function", "function": {"name")"));
}

}  // namespace
}  // namespace quire::request_fields_test
