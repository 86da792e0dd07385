// Tests which defaults requests take from generation_config.json, by vLLM's rules.
#include "quire/text/generation_config.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "format/gguf_builder.h"
#include "server/request/completion_request.h"

namespace quire {
namespace {

class ModelFolder {
 public:
  ModelFolder() : path_(std::filesystem::path(::testing::TempDir()) / ("quire_generation_config_" + std::to_string(getpid()))) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~ModelFolder() { std::filesystem::remove_all(path_); }
  ModelFolder(const ModelFolder&) = delete;
  ModelFolder& operator=(const ModelFolder&) = delete;
  void write(std::string_view text) const { std::ofstream(path_ / "generation_config.json") << text; }
  [[nodiscard]] std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

template <class Value>
std::string field_of(const Result<Value>& result) {
  return result.has_value() ? "" : result.error().field;
}

// transformers 4.57's GenerationConfig gives vLLM these values for Qwen3's file: the differences from its defaults.
TEST(GenerationConfig, ReadsTheFieldsThatVllmReads) {
  const auto read = parse_generation_config(R"({"bos_token_id": 1, "do_sample": true, "eos_token_id": [2, 3], "pad_token_id": 1,
    "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.05, "repetition_penalty": 1.1, "max_new_tokens": 99,
    "transformers_version": "4.51.0"})");
  ASSERT_TRUE(read.has_value()) << read.error().to_string();
  EXPECT_EQ(*read, (GenerationDefaults{
                       .temperature = 0.6, .top_p = 0.95, .min_p = 0.05, .repetition_penalty = 1.1, .top_k = 20, .max_tokens = 99}));
  EXPECT_EQ(describe(*read), "temperature 0.6, top_p 0.95, top_k 20, min_p 0.05, repetition_penalty 1.1, max_tokens 99");
  EXPECT_EQ(parse_generation_config(R"({"top_k": 50, "temperature": null})").value(), GenerationDefaults{})
      << "these are transformers' defaults";
  EXPECT_EQ(describe(GenerationDefaults{}), "");
}

TEST(GenerationConfig, RefusesValuesThatNoRequestMayHave) {
  for (const auto& [text, field] : {std::pair(R"({"temperature": -1})", "temperature"),
                                    {R"({"temperature": "warm"})", "temperature"},
                                    {R"({"top_p": 0})", "top_p"},
                                    {R"({"top_p": 1e400})", "top_p"},
                                    {R"({"top_k": -2})", "top_k"},
                                    {R"({"top_k": 1.5})", "top_k"},
                                    {R"({"min_p": 2})", "min_p"},
                                    {R"({"repetition_penalty": 0})", "repetition_penalty"},
                                    {R"({"max_new_tokens": 0})", "max_new_tokens"},
                                    {R"({"max_new_tokens": 1e30})", "max_new_tokens"},
                                    {"[]", ""},
                                    {"", ""},
                                    {"{\"temperature\": 1", ""}}) {
    const auto read = parse_generation_config(text);
    ASSERT_FALSE(read.has_value()) << text;
    EXPECT_EQ(read.error().field, field) << text;
  }
}

TEST(GenerationConfig, IsReadFromTheModelFolderUnlessConfigured) {
  const ModelFolder folder;
  EXPECT_EQ(read_generation_config(folder.path(), {}).value().defaults, GenerationDefaults{}) << "the file does not exist";
  EXPECT_EQ(field_of(read_generation_config("model.gguf", {.source = folder.path()})), "generation_config");
  folder.write(R"({"temperature": 0.6, "max_new_tokens": 70})");
  const GenerationDefaults of_model{.temperature = 0.6, .max_tokens = 70};
  EXPECT_EQ(read_generation_config(folder.path(), {}).value().defaults, of_model);
  EXPECT_EQ(read_generation_config(folder.path() + "/model.gguf", {}).value().defaults, of_model);
  EXPECT_EQ(read_generation_config(folder.path(), {.source = "vllm"}).value().defaults, GenerationDefaults{});
  EXPECT_EQ(read_generation_config("elsewhere.gguf", {.source = folder.path()}).value().defaults,
            (GenerationDefaults{.temperature = 0.6, .max_tokens = 70, .max_limit = 70}));
  folder.write(R"({"temperature": 7e7})");
  EXPECT_EQ(field_of(read_generation_config(folder.path(), {})), "generation_config.temperature");
  const std::string largest = R"({"temperature": 0.6})" + std::string((1 << 20) - 20, ' ');
  folder.write(largest);
  EXPECT_EQ(read_generation_config(folder.path(), {}).value().defaults.temperature, 0.6);
  folder.write(largest + ' ');
  EXPECT_EQ(field_of(read_generation_config(folder.path(), {})), "generation_config") << "the file is too large";
}

TEST(GenerationConfig, OverridesHavePriorityOverTheFile) {
  const ModelFolder folder;
  folder.write(R"({"temperature": 0.6, "top_p": 0.9, "max_new_tokens": 70})");
  const auto read = read_generation_config(folder.path(), {.overrides = R"({"temperature": 0, "top_k": 50, "max_new_tokens": 5})"});
  EXPECT_EQ(read.value().source, folder.path() + "/generation_config.json and --override-generation-config");
  EXPECT_EQ(read.value().defaults, (GenerationDefaults{.temperature = 0.0, .top_p = 0.9, .top_k = 50, .max_tokens = 5, .max_limit = 5}));
  EXPECT_EQ(field_of(read_generation_config(folder.path(), {.overrides = R"({"temprature": 0})"})),
            "override_generation_config.temprature");
  EXPECT_EQ(field_of(read_generation_config(folder.path(), {.overrides = "warm"})), "override_generation_config");
}

// Writes a GGUF file of one tensor with the given keys, and returns its path.
std::string write_gguf(const ModelFolder& folder, quire::testing::GgufBuilder builder) {
  builder.tensor("first", GgmlType::f32, {4, 3}, 0);
  builder.data_bytes = 48;
  const std::string path = folder.path() + "/model.gguf";
  std::ofstream(path, std::ios::binary) << builder.build().as_text();
  return path;
}

// llama.cpp's converter writes these keys for Qwen3, and also writes keys that quire does not support if a model's file has them.
TEST(GenerationConfig, IsReadFromTheKeysOfAGgufFile) {
  const ModelFolder folder;
  quire::testing::GgufBuilder builder;
  builder.string("general.architecture", "qwen3")
      .scalar("general.sampling.temp", GgufValueType::f32, 0.6F)
      .scalar("general.sampling.top_k", GgufValueType::i32, std::int32_t{20})
      .scalar("general.sampling.top_p", GgufValueType::f32, 0.95F)
      .scalar("general.sampling.min_p", GgufValueType::f32, 0.05F)
      .scalar("general.sampling.penalty_repeat", GgufValueType::f32, 1.1F)
      .scalar("general.sampling.mirostat", GgufValueType::i32, std::int32_t{2});
  const std::string path = write_gguf(folder, builder);
  folder.write(R"({"temperature": 0.1, "max_new_tokens": 70})");
  const auto read = read_generation_config(path, {});
  ASSERT_TRUE(read.has_value()) << read.error().to_string();
  EXPECT_EQ(describe(read->defaults), "temperature 0.6, top_p 0.95, top_k 20, min_p 0.05, repetition_penalty 1.1")
      << "the keys have priority over a file in the same folder";
  EXPECT_EQ(read->source, "general.sampling.* of the GGUF file");
  EXPECT_EQ(read->ignored, std::vector<std::string>{"mirostat"});
  EXPECT_EQ(read_generation_config(path, {.source = "vllm"}).value().defaults, GenerationDefaults{});
  EXPECT_EQ(describe(read_generation_config(path, {.overrides = R"({"top_k": 5, "min_p": 0})"}).value().defaults),
            "temperature 0.6, top_p 0.95, top_k 5, min_p 0, repetition_penalty 1.1");
}

TEST(GenerationConfig, KeysOfAGgufFileFollowTheRulesOfTheJsonFile) {
  const ModelFolder folder;
  const auto with = [&](std::string_view key, GgufValueType type, auto value) {
    quire::testing::GgufBuilder builder;
    return read_generation_config(write_gguf(folder, builder.scalar(key, type, value)), {});
  };
  EXPECT_EQ(with("general.sampling.top_k", GgufValueType::i32, std::int32_t{50}).value().defaults, GenerationDefaults{})
      << "transformers' default";
  EXPECT_EQ(with("general.sampling.top_k", GgufValueType::i32, std::int32_t{-1}).value().defaults.top_k, 0) << "all tokens";
  EXPECT_EQ(field_of(with("general.sampling.temp", GgufValueType::f32, -1.0F)), "generation_config.temperature");
  const auto text = with("general.sampling.temp", GgufValueType::boolean, std::uint8_t{1});
  EXPECT_EQ(field_of(text), "generation_config.general.sampling.temp");
  EXPECT_EQ(text.error().remedy, "correct the file, or use --generation-config vllm");
  folder.write(R"({"temperature": 0.25})");
  EXPECT_EQ(with("general.quantization_version", GgufValueType::u32, std::uint32_t{2}).value().defaults.temperature, 0.25)
      << "a GGUF file without these keys";
}

CompletionRequest asked(Api api, std::string_view body, const GenerationDefaults& defaults) {
  return parse_completion_request(api, body, {.vocab_size = 100, .defaults = defaults}).value();
}

TEST(GenerationConfig, SetsFieldsThatTheRequestOmits) {
  const GenerationDefaults defaults{
      .temperature = 0.5, .top_p = 0.75, .min_p = 0.25, .repetition_penalty = 1.5, .top_k = -1, .max_tokens = 9};
  const std::string_view chat = R"({"messages": [{"role": "user", "content": "Hi"}], "temperature": null})";
  const CompletionRequest silent = asked(Api::chat, chat, defaults);
  EXPECT_EQ(silent.sampling.temperature, 0.5F);
  EXPECT_EQ(silent.sampling.top_p, 0.75F);
  EXPECT_EQ(silent.sampling.min_p, 0.25F);
  EXPECT_EQ(silent.sampling.repetition_penalty, 1.5F);
  EXPECT_EQ(silent.sampling.top_k, 0);
  EXPECT_EQ(silent.max_tokens, std::nullopt);
  EXPECT_EQ(silent.default_max_tokens, 9U);
  const CompletionRequest said = asked(Api::completion, R"({"prompt": "Hi", "temperature": 0, "top_p": 1, "max_tokens": 50})", defaults);
  EXPECT_EQ(said.sampling.temperature, 0.0F);
  EXPECT_EQ(said.sampling.top_p, 1.0F);
  EXPECT_EQ(said.max_tokens, 50U);
  EXPECT_EQ(asked(Api::completion, R"({"prompt": "Hi"})", defaults).max_tokens, 16U) << "vLLM also keeps 16 for completions";
}

TEST(GenerationConfig, MaxNewTokensLimitsEveryRequest) {
  const GenerationDefaults defaults{.max_limit = 7};
  EXPECT_EQ(asked(Api::completion, R"({"prompt": "Hi", "max_tokens": 50})", defaults).max_tokens, 7U);
  EXPECT_EQ(asked(Api::completion, R"({"prompt": "Hi", "max_tokens": 3})", defaults).max_tokens, 3U);
  EXPECT_EQ(asked(Api::completion, R"({"prompt": "Hi"})", defaults).max_tokens, 7U);
  EXPECT_EQ(asked(Api::chat, R"({"messages": [{"role": "user", "content": "Hi"}]})", defaults).default_max_tokens, 7U);
}

}  // namespace
}  // namespace quire
