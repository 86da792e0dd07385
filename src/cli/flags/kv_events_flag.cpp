#include "cli/flags/kv_events_flag.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <map>
#include <string>
#include <utility>
#include <variant>

namespace quire {
namespace {

namespace json = boost::json;

using Place = std::variant<bool*, std::uint32_t*, std::string*>;

// False: the value is of another kind.
bool put(const json::value& value, const Place& place) {
  if (bool* const* flag = std::get_if<bool*>(&place)) {
    if (value.is_bool()) **flag = value.get_bool();
    return value.is_bool();
  }
  if (std::string* const* text = std::get_if<std::string*>(&place)) {
    if (value.is_string()) **text = value.get_string();
    return value.is_string();
  }
  boost::system::error_code error;
  const auto number = value.to_number<std::uint32_t>(error);
  if (!error) *std::get<std::uint32_t*>(place) = number;
  return !error;
}

const char* kind_of(const Place& place) {
  return std::holds_alternative<bool*>(place) ? "true or false" : std::holds_alternative<std::string*>(place) ? "a text" : "a number";
}

}  // namespace

Result<KvEventsOptions> parse_kv_events(std::string_view text) {
  boost::system::error_code error;
  const json::value value = json::parse(text, error, {}, {.max_depth = 4});
  if (error || !value.is_object())
    return fail(ErrorCode::invalid_argument, "", "is no JSON object", R"(give one such as {"enable_kv_cache_events": true})");
  KvEventsOptions options;
  const std::map<std::string_view, Place> fields = {{"enable_kv_cache_events", &options.enable_kv_cache_events},
                                                    {"publisher", &options.publisher},
                                                    {"endpoint", &options.endpoint},
                                                    {"replay_endpoint", &options.replay_endpoint},
                                                    {"buffer_steps", &options.buffer_steps},
                                                    {"hwm", &options.hwm},
                                                    {"max_queue_size", &options.max_queue_size},
                                                    {"topic", &options.topic},
                                                    {"use_int_block_hashes", &options.use_int_block_hashes},
                                                    {"format", &options.format}};
  for (const auto& [name, given] : value.get_object()) {
    const auto field = fields.find({name.data(), name.size()});
    if (field == fields.end()) return fail(ErrorCode::invalid_argument, std::string(name), "is not known", "see docs/events.md");
    if (!given.is_null() && !put(given, field->second))
      return fail(ErrorCode::invalid_argument, std::string(name), "is " + json::serialize(given),
                  fmt::format("give {}", kind_of(field->second)));
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
         R"(Tell routers which blocks the KV cache holds, over ZeroMQ, as vLLM does: {"enable_kv_cache_events": true, "endpoint": )"
         R"("tcp://*:5557", "replay_endpoint": "tcp://*:5558"}; docs/events.md lists the fields)")
      ->type_name("JSON");
}

}  // namespace quire
