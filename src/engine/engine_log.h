#pragma once
// What an operator should know of the engine, in lines. Nothing of prompts or answers.
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "quire/base/logger.h"
#include "quire/engine.h"

namespace quire {

class EngineLog {
 public:
  // Null: silent.
  explicit EngineLog(std::shared_ptr<Logger> logger) : logger_(std::move(logger)) {}

  void started(const ModelInfo& model, const EngineOptions& options);
  // After each step: a line where something has failed since the last one.
  void report(const EngineStats& stats);
  void stopped(const EngineStats& stats, std::uint32_t num_aborted);

 private:
  // What the log has said last, so that a line tells a change.
  struct ToldOfTier {
    std::uint64_t refused = 0, failed = 0;
    bool loads_left_out = false, stores_left_out = false;
  };

  void grown(std::string_view event, std::uint64_t now, std::uint64_t& told);
  void turned(const KvTierStats& tier, std::string_view what, bool is_left_out, bool& told);
  void report(const KvTierStats& tier, ToldOfTier& told);

  std::shared_ptr<Logger> logger_;
  std::uint64_t failed_requests_ = 0, failed_transfers_ = 0, stray_transfers_ = 0, lost_trace_steps_ = 0;
  bool journal_ended_ = false;
  std::vector<ToldOfTier> tiers_;
};

}  // namespace quire
