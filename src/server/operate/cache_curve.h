#pragma once
// GET /v1/cache/curve: the hit rates that KV caches of other sizes would have had (docs/curve.md). The counts come from the core
// (quire/lab/curve.h).
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "quire/engine.h"
#include "server/api/routes.h"

namespace quire {

inline constexpr std::string_view kCurvePath = "/v1/cache/curve";

struct CurveRequest {
  std::optional<std::string> tenant;        // only the curve of this tenant; nullopt: the curve of all, and each tenant's
  std::optional<std::uint64_t> more_bytes;  // adds a row for a cache with this many more bytes
};

// Returns JSON. Errors: more_bytes exceeds the largest size.
[[nodiscard]] Result<std::string> cache_curve_json(const EngineHitRateCurve& known, const CurveRequest& request);

// Called on the server's thread. The reply follows when the engine thread has collected the data.
[[nodiscard]] Reply show_cache_curve(Serving& serving, HttpRequest& request, const Wake& wake);

}  // namespace quire
