// Handles the inputs of streaming sessions. Called from Core::continue_session() and when a session has stopped, on the core's thread. An
// input that arrives early is copied and queued; whether it fits is known only at its turn. If it does not fit, the session ends, as if no
// more input came.
#include "core/schedule/requests/sessions.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace quire {

namespace {

SessionUpdate kept(const SessionInput& input) {
  return {.tokens = {input.tokens.begin(), input.tokens.end()},
          .features = {input.multimodal.begin(), input.multimodal.end()},
          .arrival_time = input.arrival_time,
          .stops = {.max_tokens = input.max_tokens,
                    .min_tokens = input.min_tokens,
                    .eos_ids = {input.eos_ids.begin(), input.eos_ids.end()},
                    .stop_token_ids = {input.stop_token_ids.begin(), input.stop_token_ids.end()},
                    .repetition = input.repetition},
          .sampling = input.sampling};
}

Result<void> check_items(const SessionInput& input) {
  std::uint32_t last = 0;
  for (const MultimodalFeature& feature : input.multimodal) {
    const PlaceholderRange& position = feature.position;
    if (position.offset() < last || std::uint64_t{position.offset()} + position.length() > input.tokens.size()) {
      return fail(ErrorCode::invalid_argument, "multimodal",
                  fmt::format("the item at token {} is out of order or not within the input", position.offset()),
                  "list the items in order, each within the input");
    }
    last = position.offset();
  }
  return {};
}

// Returns how many tokens the session keeps when its next input begins.
std::size_t num_kept_tokens(const Request& session) {
  return std::min(session.tokens.size(), static_cast<std::size_t>(std::max(session.num_computed_tokens, 0)));
}

bool fits(const Request& session, std::size_t num_tokens, const SchedulerOptions& options) {
  return options.admit_oversized || num_kept_tokens(session) + num_tokens < options.max_model_len;
}

Result<void> check_input(const Request& session, const SessionInput& input, const SchedulerOptions& options) {
  if (input.tokens.empty())
    return fail(ErrorCode::invalid_argument, "tokens", "must not be empty", "send at least one token, or end the session");
  if (!fits(session, input.tokens.size(), options)) {
    return fail(ErrorCode::invalid_argument, "tokens",
                fmt::format("{} tokens after {} are too many: a session may have at most {}", input.tokens.size(), num_kept_tokens(session),
                            options.max_model_len),
                "end the session and start a new one");
  }
  return check_items(input);
}

}  // namespace

Result<void> Sessions::check(const Request& session, const SessionInput& input) const {
  return check_input(session, input, context_.config.scheduler);
}

bool Sessions::give(Request& session, const SessionInput* input) {
  QUIRE_CHECK(session.resumable && session.known, "only a known session takes inputs");
  if (session.status != RequestStatus::waiting_for_input)
    session.next_inputs.push_back(input == nullptr ? std::nullopt : std::optional(kept(*input)));
  else if (input != nullptr)
    take_input(session, kept(*input));
  else
    return false;
  return true;
}

bool Sessions::advance(Request& session, RequestStatus before) {
  QUIRE_CHECK(session.resumable && session.known, "the request is a known session");
  if (context_.rules.truncates_session_answers) cut(session);
  if (session.next_inputs.empty()) {
    session.status = RequestStatus::waiting_for_input;
    queues_.num_waiting_for_input += before == RequestStatus::waiting_for_input ? 0 : 1;
  } else {
    const std::optional<SessionUpdate> next = std::move(session.next_inputs.front());
    session.next_inputs.erase(session.next_inputs.begin());
    // A queued input that does not fit after the newest outputs also ends the session.
    if (!next || !fits(session, next->tokens.size(), context_.config.scheduler)) return false;
    take_input(session, *next);
  }
  // A session that was stopped while it waited is already in a queue.
  if (session.status == RequestStatus::waiting_for_input && queues_.waiting.contains(session)) {
    Request* moved = &session;
    queues_.waiting.remove({&moved, 1});
  }
  if (session.queue == QueueName::none) queues_.enqueue(session, context_.now);
  return true;
}

// Keeps only tokens whose results have arrived. The results of tokens in flight will be dropped.
void Sessions::cut(Request& session) {
  session.num_computed_tokens = std::max(session.num_computed_tokens - session.num_output_placeholders, 0);
  session.draft_tokens.clear();
  session.in_flight.drops_stale_tokens = true;
  session.in_flight.num_stale_tokens = session.in_flight.num_tokens;
  session.num_output_placeholders = 0;
}

// Removes everything after the first `num_kept` tokens. Cached blocks are not affected: they contain only tokens before `num_kept`.
void Sessions::forget_after(Request& session, std::int32_t num_kept) const {
  session.num_computed_tokens = num_kept;
  session.num_output_placeholders = 0;
  session.draft_tokens.clear();
  forget_hashes_after(session, num_kept);
}

void Sessions::forget_hashes_after(Request& session, std::int32_t num_kept) const {
  session.hashes.resize(std::min(session.hashes.size(), static_cast<std::size_t>(num_kept) / context_.config.block_size));
}

bool Sessions::has_missing_blocks(const Request& session) const {
  if (context_.rules.idle_sessions_yield && session.num_computed_tokens > 0 && Requests::num_blocks(session) == 0) return true;
  // Without the fix, behaves like vLLM, which continues from states that are ahead of the kept tokens. vLLM has no forks.
  if (!context_.rules.cut_sessions || !context_.config.kv.has_mamba_layers()) return false;
  if (session.num_computed_tokens > session.num_tokens()) return true;
  return session.num_computed_tokens > 0 && Requests::num_blocks(session) == 0;
}

// Begins the next input. The last sampled token was never computed, so it is dropped, like everything after the computed tokens.
void Sessions::take_input(Request& session, const SessionUpdate& input) {
  const std::int32_t num_kept = std::min(session.num_computed_tokens, session.num_tokens());
  const bool starts_again = has_missing_blocks(session);
  QUIRE_CHECK(num_kept >= 0, "the number of kept tokens is not negative");
  QUIRE_CHECK(!input.tokens.empty(), "an input has tokens");
  session.tokens.resize(static_cast<std::size_t>(num_kept));
  session.num_output_tokens = 0;
  if (context_.rules.cut_sessions)
    forget_after(session, num_kept);
  else if (context_.rules.truncates_session_answers)
    forget_hashes_after(session, num_kept);
  if (starts_again) requests_.forget_loaded(session);
  for (const MultimodalFeature& feature : input.features)
    // The positions of multimodal items are relative to the input, which comes after the kept tokens.
    session.features.push_back({feature.identifier, feature.position.moved_by(static_cast<std::uint32_t>(num_kept))});
  session.tokens.insert(session.tokens.end(), input.tokens.begin(), input.tokens.end());
  session.num_prompt_tokens = session.num_tokens();
  requests_.hash_blocks(session);
  session.arrival_time = input.arrival_time;
  const std::uint32_t max_tokens = context_.rules.truncates_session_answers ? input.stops.max_tokens : session.stops.max_tokens;
  session.stops = input.stops;
  session.stops.max_tokens = max_tokens;
  session.sampling = input.sampling;
  QUIRE_CHECK(session.status != RequestStatus::waiting_for_input || queues_.num_waiting_for_input > 0,
              "num_waiting_for_input counts the sessions that wait for input");
  queues_.num_waiting_for_input -= session.status == RequestStatus::waiting_for_input ? 1 : 0;
  session.status = RequestStatus::waiting;
  requests_.record(session, RequestEventKind::queued, context_.now);
}

}  // namespace quire
