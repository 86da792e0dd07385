// Tests the fields of the cache status.
#include "server/operate/cache_status.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <string_view>

namespace quire {
namespace {

namespace json = boost::json;

TEST(CacheStatusAnswer, HasTheBlocksOfMemoryAndTiers) {
  EngineStats stats;
  stats.num_blocks = 10;
  stats.num_free_blocks = 4;
  stats.prefix_cache_queries = 100;
  stats.prefix_cache_hits = 60;
  stats.num_evicted_blocks = 3;
  stats.kv_tiers = {{.name = "disk", .num_places = 9, .num_used_slots = 4, .bytes_loaded = 77}};
  const json::value status = json::parse(cache_status(stats, 16));
  EXPECT_EQ(status.at("object"), "cache");
  EXPECT_EQ(status.at("memory"), json::parse(R"({"block_size":16,"blocks":10,"free_blocks":4,"query_tokens":100,"hit_tokens":60,
      "evicted_blocks":3})"));
  const json::object& tier = status.at("tiers").as_array().at(0).as_object();
  EXPECT_EQ(tier.at("tier"), "disk");
  EXPECT_EQ(tier.at("loaded_bytes"), 77);
  for (const auto& [name, value] : tier) {
    EXPECT_FALSE(std::string_view(name).contains("quire:")) << name;
    EXPECT_FALSE(std::string_view(name).ends_with("_total")) << name;
  }
}

}  // namespace
}  // namespace quire
