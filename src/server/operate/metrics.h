#pragma once
// Prometheus text, version 0.0.4: vLLM's names, so that its dashboards work, and our own (quire:).
#include <cstdint>
#include <string>

#include "quire/engine.h"
#include "server/http/server_stats.h"

namespace quire {

[[nodiscard]] std::string metrics_text(const EngineStats& engine, const ServerStats& server, const std::string& model_name);

// Of this process; 0 where the system does not tell.
[[nodiscard]] std::uint64_t resident_bytes();

}  // namespace quire
