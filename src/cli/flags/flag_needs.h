#pragma once
// Flags of `quire serve` that have an effect only with other flags, or with some models.
#include <CLI/CLI.hpp>
#include <span>
#include <string_view>
#include <vector>

#include "cli/flags/lora_flags.h"
#include "cli/flags/tier_flags.h"
#include "quire/base/error.h"
#include "quire/base/model_info.h"
#include "quire/base/options.h"
#include "quire/server_options.h"

namespace quire {

// The properties of the served model, engine and server on which flags depend.
struct ServedFeatures {
  const EngineOptions& engine;  // as resolved by the engine
  const ServerOptions& server;
  const TierFlags& tiers;
  const LoraFlags& lora;
  const ModelInfo& model;
};

struct FlagNeed {
  std::string_view flag;
  bool (*is_met)(const ServedFeatures& served);
  std::string_view missing;  // what the flag needs, such as "a tier"
  std::string_view remedy;
};
// Returns all flags with such a condition, except the flags that CLI11 checks itself (needs()).
std::span<const FlagNeed> flag_needs();

// Returns one entry per given flag that has no effect: the flag, the reason, and what to add.
std::vector<Error> flags_without_effect(const CLI::App& command, const ServedFeatures& served);

}  // namespace quire
