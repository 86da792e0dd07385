#include "cli/flags/lora_flags.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <string>

namespace quire {
namespace {

Result<AdapterOptions> parsed_adapters(const std::string& flags) {
  CLI::App app;
  LoraFlags parsed;
  add_lora_flags(app, parsed);
  app.parse(flags);
  return adapter_options(parsed);
}

TEST(LoraFlags, EveryFlagReachesItsOption) {
  const AdapterOptions options =
      parsed_adapters("--enable-lora --max-loras 3 --max-lora-rank 64 --max-cpu-loras 7 --lora-modules sql=/adapters/sql chat=b=c").value();
  EXPECT_EQ(options.max_loras, 3U);
  EXPECT_EQ(options.max_lora_rank, 64U);
  EXPECT_EQ(options.max_cpu_loras, 7U);
  EXPECT_EQ(options.modules, (std::vector<AdapterModule>{{"sql", "/adapters/sql"}, {"chat", "b=c"}}));
}

TEST(LoraFlags, AdaptersAreOffByDefault) {
  EXPECT_FALSE(parsed_adapters("--max-loras 3")->is_on());
  const AdapterOptions options = parsed_adapters("--enable-lora").value();
  EXPECT_EQ(options.max_loras, 1U);
  EXPECT_EQ(options.max_lora_rank, 16U);
  EXPECT_EQ(options.max_cpu_loras, 0U);
  EXPECT_EQ(parsed_adapters("--enable-lora --max-loras 0").error().field, "--max-loras");
}

TEST(LoraFlags, AcceptsModulesAsJson) {
  EXPECT_EQ(parse_lora_module(R"({"name": "sql", "path": "/a", "base_model_name": "m"})").value(), (AdapterModule{"sql", "/a"}));
  for (const char* text :
       {"sql", "=a", "sql=", "", "{", R"({"name": "sql"})", R"({"name": 1, "path": "/a"})", R"({"nam": "a", "path": "b"})"})
    EXPECT_EQ(parse_lora_module(text).error().field, "--lora-modules") << text;
}

}  // namespace
}  // namespace quire
