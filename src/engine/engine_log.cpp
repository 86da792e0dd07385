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

void EngineLog::grown(std::string_view event, std::uint64_t now, std::uint64_t& told) {
  if (now > told) logger_->write(LogLevel::warn, event, {{"count", now - told}, {"total", now}});
  told = now;
}

void EngineLog::turned(const KvTierStats& tier, std::string_view what, bool is_left_out, bool& told) {
  if (is_left_out == told) return;
  const LogLevel level = is_left_out ? LogLevel::warn : LogLevel::info;
  const std::string_view event = is_left_out ? "kv_tier_left_out" : "kv_tier_back";
  if (is_left_out && !tier.problem.empty())
    logger_->write(level, event, {{"tier", tier.name}, {"what", what}, {"why", tier.problem}});
  else
    logger_->write(level, event, {{"tier", tier.name}, {"what", what}});
  told = is_left_out;
}

void EngineLog::report(const KvTierStats& tier, ToldOfTier& told) {
  grown("kv_tier_refused", tier.num_refused_blocks, told.refused);
  grown("kv_tier_failed", tier.num_failed_blocks, told.failed);
  turned(tier, "loads", tier.loads_left_out, told.loads_left_out);
  turned(tier, "stores", tier.stores_left_out, told.stores_left_out);
}

void EngineLog::report(const EngineStats& stats) {
  if (logger_ == nullptr) return;
  grown("requests_failed", stats.finished_error, failed_requests_);
  grown("transfers_failed", stats.num_failed_transfers, failed_transfers_);
  tiers_.resize(stats.kv_tiers.size());
  for (std::size_t i = 0; i < tiers_.size(); ++i) report(stats.kv_tiers[i], tiers_[i]);
  grown("transfers_unknown", stats.num_stray_transfers, stray_transfers_);
  grown("trace_steps_lost", stats.trace_steps_dropped, lost_trace_steps_);
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
