// The inputs of streaming sessions. Called from Core::continue_session() and when a session has stopped, on the core's thread. Inputs that
// come too early are copied and queued, so whether one fits can only be said when its turn comes: then a session that would grow too long
// ends, as one does that is told its end.
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
          .max_tokens = input.max_tokens,
          .min_tokens = input.min_tokens,
          .eos_ids = {input.eos_ids.begin(), input.eos_ids.end()},
          .stop_token_ids = {input.stop_token_ids.begin(), input.stop_token_ids.end()},
          .repetition = input.repetition,
          .sampling = input.sampling};
}

Result<void> check_items(const SessionInput& input) {
  std::uint32_t last = 0;
  for (const MultimodalFeature& feature : input.multimodal) {
    const PlaceholderRange& position = feature.position;
    if (position.offset() < last || std::uint64_t{position.offset()} + position.length() > input.tokens.size()) {
      return fail(ErrorCode::invalid_argument, "multimodal",
                  fmt::format("the item at token {} is out of order or leaves the input", position.offset()),
                  "list the items in order, each within the input");
    }
    last = position.offset();
  }
  return {};
}

// Tokens that the session has when its next input begins.
std::size_t num_kept_tokens(const Request& session) {
  return std::min(session.tokens.size(), static_cast<std::size_t>(std::max(session.num_computed_tokens, 0)));
}

bool fits(const Request& session, std::size_t num_tokens, const SchedulerOptions& options) {
  return options.admit_oversized || num_kept_tokens(session) + num_tokens < options.max_model_len;
}

Result<void> check_input(const Request& session, const SessionInput& input, const SchedulerOptions& options) {
  if (input.tokens.empty()) return fail(ErrorCode::invalid_argument, "tokens", "is empty", "give at least one token, or end the session");
  if (!fits(session, input.tokens.size(), options)) {
    return fail(ErrorCode::invalid_argument, "tokens",
                fmt::format("{} tokens after {}, and all together may be at most {}", input.tokens.size(), num_kept_tokens(session),
                            options.max_model_len),
                "end the session and begin another");
  }
  return check_items(input);
}

}  // namespace

Result<void> Sessions::check(const Request& session, const SessionInput& input) const {
  return check_input(session, input, context_.config.scheduler);
}

bool Sessions::give(Request& session, const SessionInput* input) {
  QUIRE_CHECK(session.resumable && session.known, "a session takes inputs");
  if (session.status != RequestStatus::waiting_for_input)
    session.next_inputs.push_back(input == nullptr ? std::nullopt : std::optional(kept(*input)));
  else if (input != nullptr)
    take_input(session, kept(*input));
  else
    return false;
  return true;
}

bool Sessions::go_on(Request& session, RequestStatus before) {
  QUIRE_CHECK(session.resumable && session.known, "a session");
  if (context_.rules.sessions_cut) cut(session);
  if (session.next_inputs.empty()) {
    session.status = RequestStatus::waiting_for_input;
    queues_.num_waiting_for_input += before == RequestStatus::waiting_for_input ? 0 : 1;
  } else {
    const std::optional<SessionUpdate> next = std::move(session.next_inputs.front());
    session.next_inputs.erase(session.next_inputs.begin());
    // One that was given in time, and does not fit behind what was put out since, ends the session too.
    if (!next || !fits(session, next->tokens.size(), context_.config.scheduler)) return false;
    take_input(session, *next);
  }
  // One that was stopped while it waited is in a queue already.
  if (session.status == RequestStatus::waiting_for_input && queues_.waiting.contains(session)) {
    Request* moved = &session;
    queues_.waiting.remove({&moved, 1});
  }
  if (session.queue == QueueName::none) queues_.enqueue(session, context_.now);
  return true;
}

// What is computed for good is kept; what is in flight behind it will be dropped.
void Sessions::cut(Request& session) {
  session.num_computed_tokens = std::max(session.num_computed_tokens - session.num_output_placeholders, 0);
  session.draft_tokens.clear();
  session.drops_stale = true;
  session.num_stale_tokens = session.num_tokens_in_flight;
  session.num_output_placeholders = 0;
}

// Named blocks end before: they are full of tokens that were known, and computed, before the last of the answer was.
void Sessions::forget_behind(Request& session, std::int32_t num_kept) const {
  session.num_computed_tokens = num_kept;
  session.num_output_placeholders = 0;
  session.draft_tokens.clear();
  forget_names_behind(session, num_kept);
}

void Sessions::forget_names_behind(Request& session, std::int32_t num_kept) const {
  session.hashes.resize(std::min(session.hashes.size(), static_cast<std::size_t>(num_kept) / context_.config.block_size));
}

bool Sessions::lacks_blocks(const Request& session) const {
  // Without the cure as vLLM, which goes on from states that have gone on behind the tokens, and knows no forks.
  if (!context_.config.cures.cut_sessions || !context_.config.kv.has_mamba_layers()) return false;
  if (session.num_computed_tokens > session.num_tokens()) return true;
  return session.num_computed_tokens > 0 && Requests::num_blocks(session) == 0;
}

// The last sampled token was never computed: it is dropped, and so is everything after the computed ones.
void Sessions::take_input(Request& session, const SessionUpdate& input) {
  const std::int32_t num_kept = std::min(session.num_computed_tokens, session.num_tokens());
  const bool begins_anew = lacks_blocks(session);
  QUIRE_CHECK(num_kept >= 0, "a count");
  QUIRE_CHECK(!input.tokens.empty(), "an input was checked for tokens");
  session.tokens.resize(static_cast<std::size_t>(num_kept));
  session.num_output_tokens = 0;
  if (context_.config.cures.cut_sessions)
    forget_behind(session, num_kept);
  else if (context_.rules.sessions_cut)
    forget_names_behind(session, num_kept);
  if (begins_anew) requests_.forget_loaded(session);
  for (const MultimodalFeature& feature : input.features)
    // Items count from the input's begin; in the request they lie behind what was kept.
    session.features.push_back({feature.identifier, feature.position.moved_by(static_cast<std::uint32_t>(num_kept))});
  session.tokens.insert(session.tokens.end(), input.tokens.begin(), input.tokens.end());
  session.num_prompt_tokens = session.num_tokens();
  requests_.name_blocks(session);
  session.arrival_time = input.arrival_time;
  if (context_.rules.sessions_cut) session.max_tokens = input.max_tokens;
  session.min_tokens = input.min_tokens;
  session.eos_ids = input.eos_ids;
  session.stop_token_ids = input.stop_token_ids;
  session.repetition = input.repetition;
  session.sampling = input.sampling;
  QUIRE_CHECK(session.status != RequestStatus::waiting_for_input || queues_.num_waiting_for_input > 0,
              "sessions between two inputs are counted");
  queues_.num_waiting_for_input -= session.status == RequestStatus::waiting_for_input ? 1 : 0;
  session.status = RequestStatus::waiting;
  requests_.record(session, RequestEventKind::queued, context_.now);
}

}  // namespace quire
