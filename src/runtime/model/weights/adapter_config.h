#pragma once
// What adapter_config.json of a PEFT folder says, as far as it matters to what the adapter computes.
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "format/json.h"
#include "quire/base/error.h"

namespace quire {

struct AdapterConfig {
  std::uint32_t rank = 0;
  double alpha = 0.0;
  bool rank_stabilized = false;  // the scale is alpha / sqrt(rank), not alpha / rank
  // Of modules that have their own, by the end of their names.
  std::vector<std::pair<std::string, std::uint32_t>> ranks;
  std::vector<std::pair<std::string, double>> alphas;

  // `module`: its name, dots between the parts.
  [[nodiscard]] std::uint32_t rank_of(std::string_view module) const;
  [[nodiscard]] double scale_of(std::string_view module) const;
};

// Errors: `corrupt` (a field of another type, or out of its range), `unsupported` (what adds something else than two matrices of low rank;
// patterns that are no plain names), naming the field.
Result<AdapterConfig> read_adapter_config(const JsonRef& config);

}  // namespace quire
