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
  // Values of modules with separate settings, by the end of the module's name.
  std::vector<std::pair<std::string, std::uint32_t>> ranks;
  std::vector<std::pair<std::string, double>> alphas;

  // `module`: name of a module, with dots between its parts.
  [[nodiscard]] std::uint32_t rank_of(std::string_view module) const;
  [[nodiscard]] double scale_of(std::string_view module) const;
};

// Reads the config. Errors, naming the field: `corrupt` (a field has another type or is out of range), `unsupported` (the adapter does not
// consist of pairs of low-rank matrices; a pattern is not a plain name).
Result<AdapterConfig> read_adapter_config(const JsonRef& config);

}  // namespace quire
