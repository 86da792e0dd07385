// Tests which model a name means, and how paths of one model are split.
#include "server/models/model_names.h"

#include <gtest/gtest.h>

#include "base/name_pattern.h"
#include "server/models/upstream_path.h"

namespace quire {
namespace {

ModelEntry entry(std::string name, std::vector<std::string> aliases = {}, std::vector<std::string> adapters = {}) {
  return {.name = std::move(name),
          .aliases = std::move(aliases),
          .arguments = {},
          .adapters = std::move(adapters),
          .memory_bytes = 0,
          .facts = {}};
}

std::string index_text(const Result<std::size_t>& found) {
  return found ? std::to_string(*found) : found.error().to_string();
}

TEST(NamePattern, MatchesAnyTextForEachStar) {
  for (const auto& [pattern, name] : std::vector<std::pair<std::string, std::string>>{{"claude-*", "claude-sonnet-4"},
                                                                                      {"claude-*", "claude-"},
                                                                                      {"*", ""},
                                                                                      {"*", "x"},
                                                                                      {"a*b*c", "aXbbYc"},
                                                                                      {"a**c", "ac"},
                                                                                      {"x", "x"}})
    EXPECT_TRUE(matches_pattern(pattern, name)) << pattern << " " << name;
  for (const auto& [pattern, name] : std::vector<std::pair<std::string, std::string>>{
           {"claude-*", "claude"}, {"claude-*", "my-claude-3"}, {"a*b", "abc"}, {"a*b*c", "acb"}, {"x", "X"}, {"", "x"}})
    EXPECT_FALSE(matches_pattern(pattern, name)) << pattern << " " << name;
}

TEST(NamePattern, TakesLinearStepsForManyStars) {
  EXPECT_FALSE(matches_pattern(std::string(50, '*') + "b", std::string(20'000, 'a')));
}

TEST(FindEntry, PrefersExactNamesToPatternsOfEarlierEntries) {
  const std::vector<ModelEntry> entries = {entry("small", {"claude-*"}), entry("large", {"claude-opus", "gpt-*"}, {"poet"}),
                                           entry("rest", {"*"})};
  EXPECT_EQ(index_text(find_entry(entries, "")), "0");
  EXPECT_EQ(index_text(find_entry(entries, "small")), "0");
  EXPECT_EQ(index_text(find_entry(entries, "claude-opus")), "1");
  EXPECT_EQ(index_text(find_entry(entries, "claude-haiku")), "0");
  EXPECT_EQ(index_text(find_entry(entries, "gpt-4o")), "1");
  EXPECT_EQ(index_text(find_entry(entries, "poet")), "1");
  EXPECT_EQ(index_text(find_entry(entries, "unknown")), "2");
}

TEST(FindEntry, AcceptsOllamasTag) {
  const std::vector<ModelEntry> entries = {entry("small"), entry("b:latest")};
  EXPECT_EQ(index_text(find_entry(entries, "small:latest", true)), "0");
  EXPECT_EQ(index_text(find_entry(entries, "b:latest", true)), "1");
  EXPECT_FALSE(find_entry(entries, "small:latest").has_value()) << "the process of the model does not know this name outside /api/";
}

TEST(FindEntry, ListsNamesForAnUnknownName) {
  const std::vector<ModelEntry> entries = {entry("small"), entry("large", {"gpt-*"})};
  EXPECT_EQ(index_text(find_entry(entries, "smal")),
            "model: 'smal' is not served by this server; did you mean 'small'? use 'small', 'large'");
  EXPECT_EQ(find_entry(entries, "x").error().code, ErrorCode::not_found);
}

TEST(CheckNames, RefusesNamesThatTwoModelsHave) {
  EXPECT_TRUE(check_names(std::vector{entry("a", {"x*"}), entry("b", {"y*"})}).has_value());
  EXPECT_EQ(check_names(std::vector{entry("a"), entry("a")}).error().message, "model 'a' has the name 'a' twice");
  EXPECT_EQ(check_names(std::vector{entry("a", {"x"}), entry("b", {}, {"x"})}).error().message,
            "the models 'a' and 'b' both have the name 'x'");
  EXPECT_FALSE(check_names(std::vector{entry("a", {"x*"}), entry("b", {"x*"})}).has_value());
}

TEST(CheckNames, RefusesControlCharacters) {
  EXPECT_EQ(check_names(std::vector{entry("a\nb")}).error().message, "the name 'a?b' contains a control character");
  EXPECT_TRUE(check_names(std::vector{entry("\u00fc \u6a21")}).has_value());
}

TEST(ListedNames, LeavesOutPatterns) {
  EXPECT_EQ(listed_names(entry("a", {"b", "c*"}, {"d"})), (std::vector<std::string>{"a", "b", "d"}));
}

TEST(FindUpstream, SplitsTheNameFromThePath) {
  const std::vector<ModelEntry> entries = {entry("small"), entry("org/repo:Q4"), entry("org/repo")};
  const auto split = [&](std::string_view target) {
    const auto found = find_upstream(entries, target);
    return found ? std::to_string(found->model) + " " + found->rest : found.error().message;
  };
  EXPECT_EQ(split("/upstream/small/metrics"), "0 /metrics");
  EXPECT_EQ(split("/upstream/small/v1/x?a=/b"), "0 /v1/x?a=/b");
  EXPECT_EQ(split("/upstream/small"), "0 ");
  EXPECT_EQ(split("/upstream/small?a=b"), "0 ?a=b");
  EXPECT_EQ(split("/upstream/org/repo:Q4/"), "1 /");
  EXPECT_EQ(split("/upstream/org/repo/v1/models"), "2 /v1/models");
  EXPECT_EQ(split("/upstream/org%2Frepo/health"), "2 /health");
  EXPECT_EQ(split("/upstream/smaller/health"), "'smaller' is not served by this server");
  EXPECT_EQ(split("/upstream/"), "the path names no model");
  EXPECT_EQ(split("/upstream//x"), "the path names no model");
}

}  // namespace
}  // namespace quire
