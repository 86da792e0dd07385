#include "hub/model_name.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

constexpr const char* kEndpoint = "https://hub.example";

// Returns "hub:REPO|VARIANT", "url:URL", "path:PATH" or "error".
std::string kind_of(std::string_view text) {
  const auto name = parse_model_name(text, kEndpoint);
  if (!name) return "error";
  if (const auto* hub = std::get_if<HubName>(&*name)) return "hub:" + hub->repo + "|" + hub->variant;
  if (const auto* url = std::get_if<FileUrl>(&*name)) return "url:" + url->url;
  return "path:" + std::get<LocalPath>(*name).path;
}

TEST(ModelName, ReadsNamesOfTheHub) {
  EXPECT_EQ(kind_of("org/repo"), "hub:org/repo|");
  EXPECT_EQ(kind_of("org/repo:Q4_K_M"), "hub:org/repo|Q4_K_M");
  EXPECT_EQ(kind_of("org/repo:sub/file-00001-of-00002.gguf"), "hub:org/repo|sub/file-00001-of-00002.gguf");
  EXPECT_EQ(kind_of("Qwen/Qwen2.5-0.5B_x"), "hub:Qwen/Qwen2.5-0.5B_x|");
  EXPECT_EQ(kind_of("hf://org/repo:Q8_0"), "hub:org/repo|Q8_0");
  EXPECT_EQ(kind_of("hf.co/org/repo"), "hub:org/repo|");
  EXPECT_EQ(kind_of("hf://gpt2"), "hub:gpt2|");
}

TEST(ModelName, ReadsPagesOfTheHub) {
  EXPECT_EQ(kind_of("https://hub.example/org/repo"), "hub:org/repo|");
  EXPECT_EQ(kind_of("https://hub.example/org/repo/tree/main/"), "hub:org/repo|");
  EXPECT_EQ(kind_of("https://hub.example/org/repo/blob/main/a/b.gguf"), "hub:org/repo|a/b.gguf");
  EXPECT_EQ(kind_of("https://hub.example/org/repo/resolve/main/b.gguf?download=true"), "hub:org/repo|b.gguf");
  EXPECT_EQ(kind_of("https://hub.example/org/repo/resolve/v2/b.gguf"), "url:https://hub.example/org/repo/resolve/v2/b.gguf");
  EXPECT_EQ(kind_of("https://hub.example.org/org/repo"), "url:https://hub.example.org/org/repo");
  EXPECT_EQ(kind_of("http://other.example/m.gguf"), "url:http://other.example/m.gguf");
}

TEST(ModelName, LeavesOtherTextsAsPaths) {
  for (const char* path : {"model.gguf", "./org/repo", "../repo", "/models/a", "a/b/c", "models/m.gguf", "~/models", "org/", "/repo",
                           "model", "org/repo:", "org/re po", "org/..", "org/a..b", "org/a--b", "-org/repo", "org/repo.", ""})
    EXPECT_EQ(kind_of(path), "path:" + std::string(path));
}

TEST(ModelName, RefusesAPrefixWithoutAName) {
  for (const char* text : {"hf://", "hf://a/b/c", "hf://../x", "hf.co/repo", "hf://org/repo:"}) EXPECT_EQ(kind_of(text), "error") << text;
  EXPECT_EQ(parse_model_name("hf://", kEndpoint).error().field, "MODEL");
}

TEST(ModelName, LimitsTheLengthOfNames) {
  const std::string longest(96, 'a');
  EXPECT_TRUE(is_repo_name("org/" + longest, false));
  EXPECT_FALSE(is_repo_name("org/" + longest + "a", false));
}

}  // namespace
}  // namespace quire
