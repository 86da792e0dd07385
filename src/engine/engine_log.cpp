#include "engine/engine_log.h"

namespace quire {

void EngineLog::started(const ModelInfo& model, const EngineOptions& options) {
  if (logger_ == nullptr) return;
  logger_->write(LogLevel::info, "engine_started",
                 {{"model", model.name},
                  {"blocks", std::uint64_t{options.cache.num_blocks} - 1},
                  {"max_model_len", std::uint64_t{options.scheduler.max_model_len}},
                  {"max_num_seqs", std::uint64_t{options.scheduler.max_num_seqs}}});
}

void EngineLog::grown(std::string_view event, std::uint64_t now, std::uint64_t& told) {
  if (now > told) logger_->write(LogLevel::warn, event, {{"count", now - told}, {"total", now}});
  told = now;
}

void EngineLog::turned(std::string_view what, bool is_left_out, bool& told) {
  if (is_left_out == told) return;
  logger_->write(is_left_out ? LogLevel::warn : LogLevel::info, is_left_out ? "kv_tier_left_out" : "kv_tier_back", {{"what", what}});
  told = is_left_out;
}

void EngineLog::report(const EngineStats& stats) {
  if (logger_ == nullptr) return;
  grown("requests_failed", stats.finished_error, failed_requests_);
  grown("transfers_failed", stats.num_failed_transfers, failed_transfers_);
  if (stats.kv_tier) {
    grown("kv_tier_refused", stats.kv_tier->num_refused_blocks, tier_refused_);
    grown("kv_tier_failed", stats.kv_tier->num_failed_blocks, tier_failed_);
    turned("loads", stats.kv_tier->loads_left_out, loads_left_out_);
    turned("stores", stats.kv_tier->stores_left_out, stores_left_out_);
  }
  grown("transfers_unknown", stats.num_stray_transfers, stray_transfers_);
  grown("trace_steps_lost", stats.trace_steps_dropped, lost_trace_steps_);
}

void EngineLog::stopped(const EngineStats& stats, std::uint32_t num_aborted) {
  if (logger_ == nullptr) return;
  logger_->write(LogLevel::info, "engine_stopped",
                 {{"steps", stats.num_steps},
                  {"aborted", std::uint64_t{num_aborted}},
                  {"transfers_left", std::uint64_t{stats.num_awaiting_transfers}}});
}

}  // namespace quire
