#include "cli/flags/kv_events_flag.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <concepts>
#include <string>
#include <utility>

#include "quire/engine_option_table.h"

namespace quire {
namespace {

namespace json = boost::json;

// Write a JSON value into an option. Return nullptr, or a description of the values that the option accepts.
const char* put(const json::value& given, bool& flag) {
  if (!given.is_bool()) return "true or false";
  flag = given.get_bool();
  return nullptr;
}
const char* put(const json::value& given, std::string& text) {
  if (!given.is_string()) return "a string";
  text = given.get_string();
  return nullptr;
}
template <std::integral Number>
const char* put(const json::value& given, Number& number) {
  boost::system::error_code error;
  const auto value = given.to_number<Number>(error);
  if (error) return "a number";
  number = value;
  return nullptr;
}

}  // namespace

Result<KvEventsOptions> parse_kv_events(std::string_view text) {
  boost::system::error_code error;
  const json::value value = json::parse(text, error, {}, {.max_depth = 4});
  if (error || !value.is_object())
    return fail(ErrorCode::invalid_argument, "", "is not a JSON object", R"(use an object such as {"enable_kv_cache_events": true})");
  KvEventsOptions options;
  for (const auto& [name, given] : value.get_object()) {
    const auto row = std::ranges::find(kKvEventsOptions, std::string_view(name), [](const auto& option) { return option.info.field; });
    if (row == kKvEventsOptions.end())
      return fail(ErrorCode::invalid_argument, std::string(name), "is not a known field", "see docs/events.md");
    if (given.is_null()) continue;
    const char* const expected = std::visit(
        [&given](auto* option) -> const char* {
          if constexpr (requires { put(given, *option); })
            return put(given, *option);
          else
            return "another field";
        },
        row->value(options));
    if (expected != nullptr)
      return fail(ErrorCode::invalid_argument, std::string(name), "has the invalid value " + json::serialize(given),
                  fmt::format("use {}", expected));
  }
  return options;
}

void add_kv_events_flag(CLI::App& app, KvEventsOptions& options) {
  app.add_option_function<std::string>(
         "--kv-events-config",
         [&options](const std::string& text) {
           auto parsed = parse_kv_events(text);
           if (!parsed) throw CLI::ValidationError("--kv-events-config", parsed.error().to_string());
           options = *std::move(parsed);
         },
         R"(Publish changes of the cached KV blocks to routers over ZeroMQ, as vLLM does: {"enable_kv_cache_events": true, "endpoint": )"
         R"("tcp://*:5557", "replay_endpoint": "tcp://*:5558"}; docs/events.md lists the fields)")
      ->type_name("JSON");
}

}  // namespace quire
