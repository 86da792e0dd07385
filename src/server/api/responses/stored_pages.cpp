#include "server/api/responses/stored_pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <charconv>
#include <utility>

#include "server/http/error_response.h"
#include "server/http/query.h"

namespace quire {

namespace json = boost::json;

namespace {

constexpr std::size_t kMaxPage = 100;

// Returns the items of a request, each with an id.
json::array items_with_ids(const StoredResponse& response) {
  json::array items = std::move(json::parse(response.input, {}, {.max_depth = 256}).get_array());
  for (std::size_t i = 0; i < items.size(); ++i) {
    json::object& item = items[i].get_object();
    if (!item.contains("id")) item.emplace("id", fmt::format("in_{}_{}", response.id.substr(response.id.find('_') + 1), i));
    if (!item.contains("type")) item.emplace("type", "message");
  }
  return items;
}

std::string page_json(json::array items, const ItemPage& page) {
  if (!page.is_ascending) std::ranges::reverse(items);
  const auto is_after = [&](const json::value& item) { return item.at("id") == json::value(page.after); };
  auto first = page.after.empty() ? items.begin() : std::ranges::find_if(items, is_after);
  if (!page.after.empty() && first != items.end()) ++first;
  json::array data;
  for (; first != items.end() && data.size() < page.limit; ++first) data.push_back(std::move(*first));
  const auto id_of = [&](bool last) { return data.empty() ? json::value() : (last ? data.back() : data.front()).at("id"); };
  const json::value first_id = id_of(false), last_id = id_of(true);
  return json::serialize(json::object{
      {"object", "list"}, {"data", std::move(data)}, {"first_id", first_id}, {"last_id", last_id}, {"has_more", first != items.end()}});
}

}  // namespace

Result<ItemPage> parse_item_page(std::string_view target) {
  QueryReader query(target);
  ItemPage page;
  const std::string order = query.text("order", "desc"), limit = query.text("limit", "20");
  page.is_ascending = order == "asc";
  if (order != "asc" && order != "desc") query.reject("order", "is '" + shown(order) + "'", "use asc or desc");
  const auto parsed = std::from_chars(limit.data(), limit.data() + limit.size(), page.limit);
  if (parsed.ec != std::errc() || parsed.ptr != limit.data() + limit.size() || page.limit < 1 || page.limit > kMaxPage)
    query.reject("limit", "is '" + shown(limit) + "'", fmt::format("use 1 to {}", kMaxPage));
  page.after = query.text("after", "");
  (void)query.text("include", "");
  (void)query.text("include[]", "");
  if (const auto done = query.finish(); !done) return std::unexpected(done.error());
  return page;
}

std::string input_items(const StoredResponse& response, const ItemPage& page) {
  return page_json(items_with_ids(response), page);
}

}  // namespace quire
