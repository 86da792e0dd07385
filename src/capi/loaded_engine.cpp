#include "capi/loaded_engine.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <utility>
#include <vector>

#include "base/json_writer.h"
#include "base/nearest_name.h"
#include "cli/flags/flag_names.h"
#include "cli/flags/serve_flags.h"
#include "cli/flags/usage_error.h"
#include "format/json.h"
#include "quire/engine_metric_table.h"

namespace quire {
namespace {

// Flags of `quire serve` about connections, clients and operators, which have no effect without a port.
constexpr auto kServerOnly = std::to_array<std::string_view>(
    {"config", "host", "port", "max-body-bytes", "max-body-bytes-in-flight", "max-connections", "session-timeout-ms", "drain-timeout-ms",
     "allow-remote-admin", "allowed-host", "cors-allow-origin", "trusted-proxy", "api-key", "tenant-keys-file", "tenant-key",
     "tenant-secret", "otlp-traces-endpoint", "otlp-service-name", "log-slow-ms"});

std::vector<std::string_view> flag_names(const CLI::App& app) {
  std::vector<std::string_view> names;
  for (const CLI::Option* option : app.get_options())
    if (!option->get_group().empty())
      for (const std::string& name : option->get_lnames())
        if (std::ranges::find(kServerOnly, name) == kServerOnly.end()) names.emplace_back(name);
  return names;
}

std::unexpected<Error> unknown_flag(const CLI::App& app, const std::string& key) {
  const auto nearest = nearest_name(key, flag_names(app));
  return fail(ErrorCode::invalid_argument, "options", fmt::format("'{}' is not a flag of quire serve", key.substr(0, 100)),
              nearest ? fmt::format("did you mean '{}'?", *nearest) : "docs/options.md lists the flags; write them without dashes");
}

std::string text_of(const boost::json::value& value) {
  return value.is_string() ? std::string(value.get_string()) : boost::json::serialize(value);
}

// Appends the arguments of the command line that a member of the options stands for.
Result<void> append_arguments(const CLI::App& app, const std::string& key, const boost::json::value& value,
                              std::vector<std::string>& arguments) {
  const std::string flag = "--" + key;
  const CLI::Option* const option = app.get_option_no_throw(flag);
  if (option == nullptr || option == app.get_help_ptr()) return unknown_flag(app, key);
  if (std::ranges::find(kServerOnly, key) != kServerOnly.end())
    return fail(ErrorCode::invalid_argument, flag, "has no effect, because this engine has no port", "remove the option");
  if (value.is_null()) return fail(ErrorCode::invalid_argument, flag, "is null", "give a value, or remove the option");
  if (option->get_items_expected_max() == 0) {  // the flag takes no value
    if (!value.is_bool())
      return fail(ErrorCode::invalid_argument, flag, fmt::format("'{}' is not true or false", text_of(value).substr(0, 100)),
                  "use true or false");
    // A flag that cannot be negated is off unless it is given.
    if (value.get_bool() || !option->get_fnames().empty()) arguments.push_back(fmt::format("{}={}", flag, value.get_bool()));
    return {};
  }
  if (!value.is_array()) {
    arguments.push_back(fmt::format("{}={}", flag, text_of(value)));
    return {};
  }
  for (const boost::json::value& item : value.get_array()) arguments.push_back(fmt::format("{}={}", flag, text_of(item)));
  return {};
}

Result<std::vector<std::string>> arguments_of(const CLI::App& app, std::string_view options) {
  std::vector<std::string> arguments;
  if (options.empty()) return arguments;
  auto parsed = parse_json(options, "options", {.reject_duplicate_keys = true});
  if (!parsed) {
    parsed.error().code = ErrorCode::invalid_argument;
    return std::unexpected(std::move(parsed.error()));
  }
  if (!parsed->is_object())
    return fail(ErrorCode::invalid_argument, "options", "is not a JSON object", R"(write flags as {"max-num-seqs": 8})");
  for (const auto& [key, value] : parsed->get_object())
    if (const auto added = append_arguments(app, key, value, arguments); !added) return std::unexpected(added.error());
  return arguments;
}

// Sets the values of the flags that `app` writes into.
Result<void> parse_flags(CLI::App& app, const std::string& model, std::string_view options) {
  auto arguments = arguments_of(app, options);
  if (!arguments) return std::unexpected(arguments.error());
  arguments->push_back("--");  // what follows is not a flag
  arguments->push_back(model);
  try {
    app.parse(std::vector<std::string>(arguments->rbegin(), arguments->rend()));  // CLI11 takes the last argument first
  } catch (const CLI::ParseError& error) {
    return fail(ErrorCode::invalid_argument, "options", usage_error(app, error, *arguments));
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<LoadedEngine>> LoadedEngine::load(const std::string& model, std::string_view options) {
  CLI::App app("", "quire serve");
  ServeFlags flags;
  flags.log.level = LogLevel::warn;
  add_serve_flags(app, flags);
  if (const auto parsed = parse_flags(app, model, options); !parsed) return std::unexpected(parsed.error());
  const auto named = [&app](const Error& error) { return std::unexpected(as_flag(app, error)); };
  const auto plan = plan_serving(app, flags);
  if (!plan) return named(plan.error());
  auto engine = plan->engine.build();
  if (!engine) return named(engine.error());
  warn_of_unused_flags(app, flags, plan->server, **engine, *plan->logger);
  std::shared_ptr<LoadedEngine> loaded(new LoadedEngine());
  loaded->logger_ = plan->logger;
  loaded->engine_ = *std::move(engine);
  auto api = LocalApi::create(*loaded->engine_, plan->server, *loaded->logger_);
  if (!api) return named(api.error());
  loaded->api_ = *std::move(api);
  return loaded;
}

std::string LoadedEngine::stats_json() const {
  const EngineStats stats = engine_->stats();
  return json_object([&](JsonWriter& json) {
    const auto add = [&](const auto& metrics) {
      for (const Metric<EngineStats>& metric : metrics)
        if (*metric.more.python != '\0') json.field(metric.more.python, std::get<std::uint64_t>(metric.value(stats)));
    };
    add(kEngineMetrics);
    add(kRecordMetrics);
  });
}

void LoadedEngine::stop() {
  if (api_ != nullptr) api_->stop();
  if (engine_ != nullptr) engine_->stop(0.0);
}

}  // namespace quire
