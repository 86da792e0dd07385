// Tests the pages of a stored response's input items.
#include "server/api/responses/stored_pages.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <string>

namespace quire {
namespace {

namespace json = boost::json;

TEST(StoredPages, ParseTheirQueryWithinLimits) {
  const auto parsed = [](const std::string& query) {
    const auto page = parse_item_page("/v1/responses/r/input_items" + query);
    return page ? std::to_string(page->limit) + (page->is_ascending ? " asc " : " desc ") + page->after : page.error().to_string();
  };
  EXPECT_EQ(parsed(""), "20 desc ");
  EXPECT_EQ(parsed("?limit=1&order=asc&after=x&include=a&include%5B%5D=b"), "1 asc x");
  EXPECT_EQ(parsed("?limit=100&order=desc"), "100 desc ");
  EXPECT_EQ(parsed("?limit=0"), "limit: is '0'; use 1 to 100");
  EXPECT_EQ(parsed("?limit=101"), "limit: is '101'; use 1 to 100");
  EXPECT_EQ(parsed("?limit=1x"), "limit: is '1x'; use 1 to 100");
  EXPECT_EQ(parsed("?order=up"), "order: is 'up'; use asc or desc");
  EXPECT_TRUE(parsed("?limt=1").contains("did you mean 'limit'?")) << parsed("?limt=1");
}

TEST(StoredPages, ReturnTheItemsAfterAnId) {
  const StoredResponse stored{"resp_9", "{}", R"([{"id":"a","type":"reasoning"},{"role":"user"},{"id":"c","type":"message"}])", "[]", {}};
  const auto page = [&](const ItemPage& wanted) {
    const json::value list = json::parse(input_items(stored, wanted));
    std::string ids;
    for (const json::value& item : list.at("data").as_array()) ids += std::string(item.at("id").as_string()) + " ";
    return ids + (list.at("has_more") == true ? "more " : "end ") + json::serialize(list.at("first_id")) +
           json::serialize(list.at("last_id"));
  };
  EXPECT_EQ(page({}), R"(c in_9_1 a end "c""a")");
  EXPECT_EQ(page({.is_ascending = true, .after = {}}), R"(a in_9_1 c end "a""c")");
  EXPECT_EQ(page({.is_ascending = true, .limit = 2, .after = {}}), R"(a in_9_1 more "a""in_9_1")");
  EXPECT_EQ(page({.is_ascending = true, .limit = 3, .after = {}}), R"(a in_9_1 c end "a""c")");
  EXPECT_EQ(page({.is_ascending = true, .limit = 2, .after = "a"}), R"(in_9_1 c end "in_9_1""c")");
  EXPECT_EQ(page({.limit = 1, .after = "c"}), R"(in_9_1 more "in_9_1""in_9_1")");
  EXPECT_EQ(page({.after = "a"}), "end nullnull");
  EXPECT_EQ(page({.after = "unknown"}), "end nullnull");
  const json::value list = json::parse(input_items(stored, {.is_ascending = true, .after = {}}));
  EXPECT_EQ(list.at("object"), "list");
  EXPECT_EQ(list.at("data").as_array()[0].at("type"), "reasoning");
  EXPECT_EQ(list.at("data").as_array()[1].at("type"), "message");
}

}  // namespace
}  // namespace quire
