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

// The features of the served model, engine and server that flags depend on.
struct ServedFeatures {
  const EngineOptions& engine;  // as the engine resolved them
  const ServerOptions& server;
  const TierFlags& tiers;
  const LoraFlags& lora;
  const ModelInfo& model;
};

struct FlagNeed {
  std::string_view flag;
  bool (*is_met)(const ServedFeatures& served);
  std::string_view missing;  // for example "a tier"
  std::string_view remedy;
};
// Returns all such flags, except the ones that CLI11 checks itself (needs()).
std::span<const FlagNeed> flag_needs();

// Returns, for each given flag without effect: its name, the reason, and what to add.
std::vector<Error> flags_without_effect(const CLI::App& command, const ServedFeatures& served);

}  // namespace quire
