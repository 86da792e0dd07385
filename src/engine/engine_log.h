#pragma once
// Writes log lines about the engine for operators. The lines never contain prompts or answers.
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
  // Creates a log. If `logger` is null, nothing is written.
  explicit EngineLog(std::shared_ptr<Logger> logger) : logger_(std::move(logger)) {}

  void started(const ModelInfo& model, const EngineOptions& options);
  // Logs the capacity of each tier, and a warning if one request may be larger than the tier.
  void opened(const std::vector<KvTierStats>& tiers, std::uint32_t max_model_len);
  // Logs the failures since the last call. Called in each round of EngineImpl::run().
  void report(const EngineStats& stats);
  void stopped(const EngineStats& stats, std::uint32_t num_aborted);

 private:
  // The values of a tier that were logged last. Only changes are logged.
  struct LoggedTier {
    std::uint64_t refused = 0, failed = 0;
    bool loads_left_out = false, stores_left_out = false;
  };

  void log_increase(std::string_view event, std::uint64_t now, std::uint64_t& logged, std::string_view tier = {});
  void log_suspension(const KvTierStats& tier, std::string_view what, bool is_disabled, bool& logged);
  void report(const KvTierStats& tier, LoggedTier& logged);

  std::shared_ptr<Logger> logger_;
  std::uint64_t failed_requests_ = 0, failed_transfers_ = 0, stray_transfers_ = 0, lost_trace_steps_ = 0;
  bool journal_ended_ = false;
  std::vector<LoggedTier> tiers_;
};

}  // namespace quire
