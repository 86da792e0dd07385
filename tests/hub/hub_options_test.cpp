#include "hub/hub_options.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>

namespace quire {
namespace {

Result<HubOptions> options_of(const std::map<std::string, std::string>& variables) {
  return read_hub_options([&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

TEST(HubOptions, UsesTheFoldersOfHuggingfaceHub) {
  EXPECT_EQ(options_of({{"HOME", "/h"}})->cache, "/h/.cache/huggingface/hub");
  EXPECT_EQ(options_of({{"HOME", "/h"}, {"XDG_CACHE_HOME", "/x"}})->cache, "/x/huggingface/hub");
  EXPECT_EQ(options_of({{"HOME", "/h"}, {"HF_HOME", "~/models"}})->cache, "/h/models/hub");
  EXPECT_EQ(options_of({{"HF_HOME", "/m"}, {"HF_HUB_CACHE", "/c"}})->cache, "/c");
  EXPECT_EQ(options_of({{"HOME", "/h"}, {"HF_HUB_CACHE", ""}})->cache, "/h/.cache/huggingface/hub");
  EXPECT_EQ(options_of({{"HOME", "/h"}})->url_cache, "/h/.cache/quire/models");
}

TEST(HubOptions, ReadsEndpointAndOffline) {
  EXPECT_EQ(options_of({})->endpoint, "https://huggingface.co");
  EXPECT_EQ(options_of({{"HF_ENDPOINT", "http://127.0.0.1:8080//"}})->endpoint, "http://127.0.0.1:8080");
  EXPECT_EQ(options_of({{"HF_ENDPOINT", "mirror.example"}}).error().field, "HF_ENDPOINT");
  for (const char* text : {"1", "true", "Yes", "ON"}) EXPECT_TRUE(options_of({{"HF_HUB_OFFLINE", text}})->is_offline) << text;
  for (const char* text : {"", "0", "off"}) EXPECT_FALSE(options_of({{"HF_HUB_OFFLINE", text}})->is_offline) << text;
}

TEST(HubOptions, ReadsTheToken) {
  EXPECT_EQ(options_of({{"HF_TOKEN", " hf_x\n"}})->token, "hf_x");
  EXPECT_EQ(options_of({{"HF_TOKEN", "a\r\nHost: b"}}).error().field, "HF_TOKEN") << "a token cannot add a header";
  const std::string path = testing::TempDir() + "quire_hub_token";
  std::ofstream(path) << "hf_file\n";
  EXPECT_EQ(options_of({{"HF_TOKEN_PATH", path}})->token, "hf_file");
  EXPECT_EQ(options_of({{"HF_TOKEN_PATH", path}, {"HF_TOKEN", "hf_x"}})->token, "hf_x");
  std::remove(path.c_str());
}

}  // namespace
}  // namespace quire
