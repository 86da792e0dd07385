#pragma once
// A small tokenizer.json for tests.
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "format/tokenizer_hf.h"

namespace quire::testing {

// A tokenizer.json with parts that a test may replace.
struct Json {
  std::string normalizer = "null";
  std::string pre_tokenizer = R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": true})";
  std::string post_processor = "null";
  std::string added = R"([{"id": 3, "content": "<s>", "special": true}, {"id": 4, "content": "</s>", "special": true}])";
  std::string model = R"({"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]})";

  [[nodiscard]] std::string text() const {
    return R"({"added_tokens": )" + added + R"(, "normalizer": )" + normalizer + R"(, "pre_tokenizer": )" + pre_tokenizer +
           R"(, "post_processor": )" + post_processor + R"(, "model": )" + model + "}";
  }
};

inline Result<TokenizerSpec> read(const Json& json, const std::string& config = "") {
  const auto tokenizer = parse_json(json.text(), "tokenizer.json");
  if (!tokenizer) return std::unexpected(tokenizer.error());
  hf::Files files{.tokenizer = JsonRef(*tokenizer, "tokenizer.json")};
  if (config.empty()) return hf::read_tokenizer(files);
  const auto parsed = parse_json(config, "tokenizer_config.json");
  if (!parsed) return std::unexpected(parsed.error());
  files.config.emplace(*parsed, "tokenizer_config.json");
  return hf::read_tokenizer(files);
}

inline void expect_error(const Json& json, ErrorCode code, std::string_view field, std::string_view message = "") {
  const auto spec = read(json);
  ASSERT_FALSE(spec) << json.text();
  EXPECT_EQ(spec.error().code, code) << spec.error().to_string();
  EXPECT_NE(spec.error().field.find(field), std::string::npos) << spec.error().to_string();
  EXPECT_NE(spec.error().message.find(message), std::string::npos) << spec.error().to_string();
}

}  // namespace quire::testing
