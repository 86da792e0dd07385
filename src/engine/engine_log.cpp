#include "engine/engine_log.h"

#include <utility>

namespace quire {

void EngineLog::started(const ModelInfo& model, const EngineOptions& options) {
  if (logger_ == nullptr) return;
  logger_->write(LogLevel::info, "engine_started",
                 {{"model", model.name},
                  {"blocks", std::uint64_t{options.cache.num_blocks} - 1},
                  {"max_model_len", std::uint64_t{options.scheduler.max_model_len}},
                  {"max_num_seqs", std::uint64_t{options.scheduler.max_num_seqs}}});
  if (!options.draft_model.empty())
    logger_->write(LogLevel::info, "draft_model",
                   {{"model", options.draft_model}, {"num_speculative_tokens", std::uint64_t{options.speculation.num_speculative_tokens}}});
}

void EngineLog::opened(const std::vector<KvTierStats>& tiers, std::uint32_t max_model_len) {
  if (logger_ == nullptr) return;
  for (const KvTierStats& tier : tiers) {
    if (tier.capacity_tokens == 0) continue;
    const std::uint64_t longest = max_model_len;
    logger_->write(LogLevel::info, "kv_tier",
                   {{"tier", tier.name}, {"blocks", std::uint64_t{tier.num_places}}, {"tokens", tier.capacity_tokens}});
    if (tier.capacity_tokens < longest)
      logger_->write(
          LogLevel::warn, "kv_tier_small",
          {{"tier", tier.name},
           {"tokens", tier.capacity_tokens},
           {"max_model_len", longest},
           {"why",
            "A request can be larger than the tier. The tier then keeps at most the first blocks of the request. Make the tier larger."}});
  }
}

void EngineLog::log_increase(std::string_view event, std::uint64_t now, std::uint64_t& logged, std::string_view tier) {
  if (now > logged && tier.empty()) logger_->write(LogLevel::warn, event, {{"count", now - logged}, {"total", now}});
  if (now > logged && !tier.empty()) logger_->write(LogLevel::warn, event, {{"tier", tier}, {"count", now - logged}, {"total", now}});
  logged = now;
}

void EngineLog::log_suspension(const KvTierStats& tier, std::string_view what, bool is_disabled, bool& logged) {
  if (is_disabled == logged) return;
  const LogLevel level = is_disabled ? LogLevel::warn : LogLevel::info;
  const std::string_view event = is_disabled ? "kv_tier_left_out" : "kv_tier_back";
  if (is_disabled && !tier.problem.empty())
    logger_->write(level, event, {{"tier", tier.name}, {"what", what}, {"why", tier.problem}});
  else
    logger_->write(level, event, {{"tier", tier.name}, {"what", what}});
  logged = is_disabled;
}

void EngineLog::report(const KvTierStats& tier, LoggedTier& logged) {
  log_increase("kv_tier_refused", tier.num_corrupted_blocks, logged.refused, tier.name);
  log_increase("kv_tier_failed", tier.num_failed_blocks, logged.failed, tier.name);
  log_suspension(tier, "loads", tier.loads_left_out, logged.loads_left_out);
  log_suspension(tier, "stores", tier.stores_left_out, logged.stores_left_out);
}

void EngineLog::report(const EngineStats& stats) {
  if (logger_ == nullptr) return;
  log_increase("requests_failed", stats.finished_error, failed_requests_);
  log_increase("transfers_failed", stats.num_failed_transfers, failed_transfers_);
  tiers_.resize(stats.kv_tiers.size());
  for (std::size_t i = 0; i < tiers_.size(); ++i) report(stats.kv_tiers[i], tiers_[i]);
  log_increase("transfers_unknown", stats.num_stray_transfers, stray_transfers_);
  log_increase("trace_steps_lost", stats.trace_steps_dropped, lost_trace_steps_);
  if (!stats.journal_ended.empty() && !std::exchange(journal_ended_, true))
    logger_->write(LogLevel::warn, "journal_ended", {{"why", stats.journal_ended}, {"bytes", stats.journal_bytes}});
}

void EngineLog::stopped(const EngineStats& stats, std::uint32_t num_aborted) {
  if (logger_ == nullptr) return;
  logger_->write(LogLevel::info, "engine_stopped",
                 {{"steps", stats.num_steps},
                  {"aborted", std::uint64_t{num_aborted}},
                  {"transfers_left", std::uint64_t{stats.num_awaiting_transfers}}});
}

}  // namespace quire
