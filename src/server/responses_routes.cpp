// The router's part of /v1/responses.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <charconv>
#include <utility>

#include "base/json_text.h"
#include "server/http/error_response.h"
#include "server/http/query.h"
#include "server/router.h"

namespace quire {

namespace json = boost::json;

namespace {

constexpr std::string_view kResponse = "/v1/responses/*", kInputItems = "/v1/responses/*/input_items";
constexpr std::size_t kMaxPage = 100;
constexpr std::uint64_t kMaxConversationBytes = 32 << 10;  // assumed, where nobody has looked

Error no_response(std::string_view id) {
  return {ErrorCode::not_found, "id", fmt::format("'{}' is not kept here, or no longer", shown(id)),
          "it may have made room for others, or had \"store\": false"};
}

struct Page {
  bool is_ascending = false;
  std::size_t limit = 20;
  std::string after;
};

Result<Page> parse_page(std::string_view target) {
  QueryReader query(target);
  Page page;
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

// The items of a request, each with an id.
json::array items_with_ids(const StoredResponse& response) {
  json::array items = std::move(json::parse(response.input, {}, {.max_depth = 256}).get_array());
  for (std::size_t i = 0; i < items.size(); ++i) {
    json::object& item = items[i].get_object();
    if (!item.contains("id")) item.emplace("id", fmt::format("in_{}_{}", response.id.substr(response.id.find('_') + 1), i));
    if (!item.contains("type")) item.emplace("type", "message");
  }
  return items;
}

std::string page_json(json::array items, const Page& page) {
  if (!page.is_ascending) std::ranges::reverse(items);
  const auto is_after = [&](const json::value& item) { return item.at("id") == json::value(page.after); };
  auto first = page.after.empty() ? items.begin() : std::ranges::find_if(items, is_after);
  if (!page.after.empty() && first != items.end()) ++first;
  json::array data;
  for (; first != items.end() && data.size() < page.limit; ++first) data.push_back(std::move(*first));
  const auto id_of = [&](bool last) {
    return data.empty() ? std::string("null") : json::serialize((last ? data.back() : data.front()).at("id"));
  };
  const std::string first_id = id_of(false), last_id = id_of(true);
  return fmt::format(R"({{"object":"list","data":{},"first_id":{},"last_id":{},"has_more":{}}})", json::serialize(data), first_id, last_id,
                     first != items.end());
}

}  // namespace

// A small body may go on from a large conversation.
std::size_t Router::num_bytes_behind(const HttpRequest& request) const {
  const bool is_alone =
      request.body.find("previous_response_id") == std::string::npos && request.body.find("item_reference") == std::string::npos;
  return request.body.size() + (is_alone ? 0 : std::min(responses_.num_bytes(), kMaxConversationBytes));
}

Reply Router::create_response(HttpRequest& request, const Wake& wake) {
  if (draining_) return refuse({ErrorCode::shutting_down, "", "the server is shutting down", "send the request elsewhere"});
  const std::size_t num_bytes = num_bytes_behind(request);
  return offload(request, num_bytes, wake, [this, tenant = keys_.tenant_of(request.authorization).value()](std::string body) -> Prepared {
    auto prepared = prepare_response(std::move(body), tenant, responses_, *model_, *options_);
    if (!prepared) return error_response(prepared.error(), options_->retry_after_s);
    return std::move(*prepared);
  });
}

Reply Router::count_input_tokens(HttpRequest& request, const Wake& wake) {
  const std::size_t num_bytes = num_bytes_behind(request);
  return offload(request, num_bytes, wake, [this, tenant = keys_.tenant_of(request.authorization).value()](std::string body) {
    return answer_or_refuse(answer_input_tokens(std::move(body), tenant, responses_, *model_, *options_));
  });
}

Reply Router::read_response(HttpRequest& request, const Wake& /*wake*/) {
  const std::string_view id = name_in(kResponse, request.path());
  QueryReader query(request.target);
  if (query.boolean("stream", false)) query.reject("stream", "is not possible: the answer is over", "read it whole");
  for (const char* hint : {"include", "include[]", "include_obfuscation"}) (void)query.text(hint, "");
  if (const auto done = query.finish(); !done) return refuse(done.error());
  const auto found = responses_.find(keys_.tenant_of(request.authorization).value(), id);
  if (found == nullptr) return refuse(no_response(id));
  return {HttpResponse{200, "application/json", found->body, {}}};
}

Reply Router::delete_response(HttpRequest& request, const Wake& /*wake*/) {
  const std::string id(name_in(kResponse, request.path()));
  if (!responses_.erase(keys_.tenant_of(request.authorization).value(), id)) return refuse(no_response(id));
  return {HttpResponse{200, "application/json", fmt::format(R"({{"id":{},"object":"response","deleted":true}})", json_string(id)), {}}};
}

Reply Router::read_response_input(HttpRequest& request, const Wake& wake) {
  const auto page = parse_page(request.target);
  if (!page) return refuse(page.error());
  const std::string_view id = name_in(kInputItems, request.path());
  const auto found = responses_.find(keys_.tenant_of(request.authorization).value(), id);
  if (found == nullptr) return refuse(no_response(id));
  return offload(request, found->input.size(), wake, [found, page = *page](const std::string& /*body*/) {
    return HttpResponse{200, "application/json", page_json(items_with_ids(*found), page), {}};
  });
}

}  // namespace quire
