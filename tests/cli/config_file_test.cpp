// Tests the YAML of --config, and which flags of the file are inserted into the arguments.
#include "cli/config_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace quire {
namespace {

using Arguments = std::vector<std::string>;

// Returns the values of the only entry of `text`.
Arguments values_of(std::string_view text) {
  const auto entries = parse_config(text);
  EXPECT_TRUE(entries.has_value() && entries->size() == 1) << text;
  return entries.has_value() && !entries->empty() ? entries->front().values : Arguments{};
}

TEST(ConfigFile, ReadsTheValuesOfYaml) {
  struct ValueCase {
    std::string text;
    Arguments values;
  };
  const ValueCase cases[] = {
      {"---\n# comment\n\nport: 8000   # the port\r\n", {"8000"}},
      {"kv-remote: redis://host:6379#db", {"redis://host:6379#db"}},
      {R"(host: "::")", {"::"}},
      {R"(key: "a # \"b\" \\ c" # d)", {R"(a # "b" \ c)"}},
      {"key: 'it''s # \"x\"'", {"it's # \"x\""}},
      {R"(key: {"temperature": 0.6, "a": {"b": "} #"}}  # why)", {R"({"temperature": 0.6, "a": {"b": "} #"}})"}},
      {"key: [a, 'b, c',\td]", {"a", "b, c", "d"}},
      {"key:\n- a\n  - 'b' # c\n# d\n- {\"e\": 1}\n", {"a", "b", R"({"e": 1})"}},
      {"key: -1", {"-1"}},
  };
  for (const ValueCase& one : cases) EXPECT_EQ(values_of(one.text), one.values) << one.text;
}

TEST(ConfigFile, ReportsTheLineOfAMistake) {
  struct MistakeCase {
    std::string text, problem;
  };
  const MistakeCase cases[] = {
      {"port 8000", "line 1: 'port 8000' is not of the form 'flag: value'"},
      {"host:a", "line 1: 'host:a' is not of the form 'flag: value'"},
      {"a: 1\na: 2", "line 2: 'a' occurs twice"},
      {"a:\nb: 1", "line 1: 'a' has no value"},
      {"a: ''", "line 1: 'a' has no value"},
      {"a: []", "line 1: 'a' has no value"},
      {"- a", "line 1: a list item without a key"},
      {"a: 1\n- b", "line 2: a list item without a key"},
      {"a:\n  b: 1", "line 2: the line is indented, but is no item of a list"},
      {"a: \"b", "line 1: the quoted text has no end, or more text follows it"},
      {"a: 'b' c", "line 1: the quoted text has no end, or more text follows it"},
      {"a: {\"b\": 1", "line 1: the object has no end"},
      {"a: [b, c", "line 1: the list has no end"},
      {"a: ['b", "line 1: a quoted text in the list has no end"},
      {"a: |", "line 1: a value cannot begin with '|'"},
      {"a: &b c", "line 1: a value cannot begin with '&'"},
  };
  for (const MistakeCase& one : cases) {
    const auto entries = parse_config(one.text);
    ASSERT_FALSE(entries.has_value()) << one.text;
    EXPECT_EQ(entries.error().message, one.problem) << one.text;
    EXPECT_FALSE(entries.error().remedy.empty()) << one.text;
  }
}

class ConfigFileArguments : public ::testing::Test {
 protected:
  ConfigFileArguments() : path_(::testing::TempDir() + "/quire_config_" + std::to_string(getpid()) + ".yaml") {}
  ~ConfigFileArguments() override { std::filesystem::remove(path_); }

  // Returns the arguments after `serve --config FILE` and these words, with the flags of a file with this text.
  Arguments with(std::string_view text, Arguments words) {
    std::ofstream(path_) << text;
    words.insert(words.begin(), {"serve", "--config", path_});
    auto arguments = with_config_file(std::move(words));
    EXPECT_TRUE(arguments.has_value()) << arguments.error().to_string();
    if (!arguments.has_value()) return {};
    std::erase(*arguments, "--config");
    std::erase(*arguments, path_);
    return *std::move(arguments);
  }

  std::string path_;
};

TEST_F(ConfigFileArguments, FollowTheArgumentsOfTheCommandLine) {
  EXPECT_EQ(with("port: 1\nserved-model-name: [a, b]\nmodel: m.gguf", {"--max-num-seqs", "4"}),
            (Arguments{"serve", "m.gguf", "--max-num-seqs", "4", "--port=1", "--served-model-name=a", "--served-model-name=b"}));
  EXPECT_EQ(with("port: 1", {"--", "m.gguf"}), (Arguments{"serve", "--port=1", "--", "m.gguf"})) << "all words after -- are no flags";
}

TEST_F(ConfigFileArguments, IgnoreAByteOrderMark) {
  EXPECT_EQ(with("\xef\xbb\xbfport: 1", {"m.gguf"}), (Arguments{"serve", "m.gguf", "--port=1"}));
}

TEST_F(ConfigFileArguments, DoNotReplaceGivenFlags) {
  EXPECT_EQ(with("port: 1\nhost: 0.0.0.0\nmodel: m.gguf", {"--port=2", "n.gguf"}),
            (Arguments{"serve", "--port=2", "n.gguf", "--host=0.0.0.0"}));
  EXPECT_EQ(with("enable-prefix-caching: true", {"m.gguf", "--no-enable-prefix-caching"}),
            (Arguments{"serve", "m.gguf", "--no-enable-prefix-caching"}))
      << "another name of the same flag";
  EXPECT_EQ(with("kv-dram: 1GiB", {"m.gguf", "--kv-dram-policy", "lru"}),
            (Arguments{"serve", "m.gguf", "--kv-dram-policy", "lru", "--kv-dram=1GiB"}))
      << "the given flag needs the flag of the file";
}

TEST_F(ConfigFileArguments, HaveFlagsWithoutValues) {
  EXPECT_EQ(with("kv-lifo: true\nenable-prefix-caching: false\nstrict-fields: false", {"m.gguf"}),
            (Arguments{"serve", "m.gguf", "--kv-lifo=true", "--enable-prefix-caching=false"}))
      << "--strict-fields is off unless it is given";
}

TEST_F(ConfigFileArguments, AreUnchangedWithoutAFile) {
  for (const Arguments& words : {Arguments{}, Arguments{"serve", "m.gguf", "--port", "1"}, Arguments{"run", "--config", "none"},
                                 Arguments{"serve", "--config"}, Arguments{"serve", "--help", "--config", "none"}})
    EXPECT_EQ(with_config_file(words).value(), words);
  EXPECT_FALSE(with_config_file({"serve", "--config", "no-such-file"}).has_value());
}

}  // namespace
}  // namespace quire
