#pragma once
// The parts of a PEFT folder's adapter_config.json that affect what the adapter computes.
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
  // Values of modules that have separate ones, by the end of the module's name.
  std::vector<std::pair<std::string, std::uint32_t>> ranks;
  std::vector<std::pair<std::string, double>> alphas;

  // `module` is the name of a module, with dots between its parts.
  [[nodiscard]] std::uint32_t rank_of(std::string_view module) const;
  [[nodiscard]] double scale_of(std::string_view module) const;
};

// Errors: `corrupt` (a field of another type or out of its range), `unsupported` (adapters that are not pairs of matrices of low rank;
// patterns that are not plain names), naming the field.
Result<AdapterConfig> read_adapter_config(const JsonRef& config);

}  // namespace quire
