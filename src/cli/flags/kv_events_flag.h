#pragma once
// --kv-events-config of `quire serve`.
#include <CLI/CLI.hpp>
#include <string_view>

#include "quire/base/options.h"

namespace quire {

// vLLM's JSON, {"enable_kv_cache_events": true, "endpoint": "tcp://*:5557"}: what it does not say is as KvEventsOptions has it. Errors name
// the field.
[[nodiscard]] Result<KvEventsOptions> parse_kv_events(std::string_view json);

// `options` must outlive parsing.
void add_kv_events_flag(CLI::App& app, KvEventsOptions& options);

}  // namespace quire
