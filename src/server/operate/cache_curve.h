#pragma once
// GET /v1/cache/curve: what other sizes of the KV cache would have found (docs/curve.md). The counts are the core's (quire/lab/curve.h).
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "quire/engine.h"
#include "server/api/routes.h"

namespace quire {

inline constexpr std::string_view kCurvePath = "/v1/cache/curve";

struct CurveRequest {
  std::optional<std::string> tenant;        // its curve alone; nullopt: that of all, and each tenant's
  std::optional<std::uint64_t> more_bytes;  // a row for the cache with so much more, too
};

// JSON. Errors: more_bytes is more than the largest size has.
[[nodiscard]] Result<std::string> cache_curve_json(const EngineCurve& known, const CurveRequest& request);

// Server's thread; answered when the engine thread has looked.
[[nodiscard]] Reply show_cache_curve(Serving& serving, HttpRequest& request, const Wake& wake);

}  // namespace quire
