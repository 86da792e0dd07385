#pragma once
// The flag --kv-events-config of `quire serve`.
#include <CLI/CLI.hpp>
#include <string_view>

#include "quire/base/options.h"

namespace quire {

// Parses vLLM's JSON, {"enable_kv_cache_events": true, "endpoint": "tcp://*:5557"}. Missing fields keep the defaults of KvEventsOptions.
// Errors name the field.
[[nodiscard]] Result<KvEventsOptions> parse_kv_events(std::string_view json);

// Adds the flag. `options` must outlive parsing.
void add_kv_events_flag(CLI::App& app, KvEventsOptions& options);

}  // namespace quire
