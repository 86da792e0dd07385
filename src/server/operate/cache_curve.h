#pragma once
// GET /v1/cache/curve: the hit rates that KV caches of other sizes would have reached (docs/curve.md). The core collects the counts
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
  std::optional<std::string> tenant;        // return only the curve of this tenant; nullopt: the curve of all requests and one per tenant
  std::optional<std::uint64_t> more_bytes;  // adds a row for a cache with this many more bytes
};

// Returns the JSON of the curves. Errors: more_bytes exceeds the largest size of the curve.
[[nodiscard]] Result<std::string> cache_curve_json(const EngineHitRateCurve& known, const CurveRequest& request);

// Called on the server's thread. The reply is ready when the engine thread has collected the data.
[[nodiscard]] Reply show_cache_curve(Serving& serving, HttpRequest& request, const Wake& wake);

}  // namespace quire
