// Lets a child share its parent's tokens and blocks. Called by Core::fork() after its checks, and by the loops for copies, always on the
// core's thread. No bytes are copied here: a plan lists the blocks to copy. Sharing is optional: if blocks run out, shares are released
// before any request is preempted, and the child is computed like any other request.
#include "core/schedule/requests/forks.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "core/schedule/requests/request_check.h"

namespace quire {

namespace {

Result<void> cannot(const char* what) {
  return fail(ErrorCode::unsupported, "parent", fmt::format("{} cannot be forked", what), "add a request with the same tokens");
}

Result<void> check_kind(const Request& parent, const CoreConfig& config) {
  if (parent.pooling) return cannot("a pooling request");
  if (config.encoder.is_encoder_decoder) return cannot("a request of an encoder-decoder model");
  return {};
}

// Returns how many of the parent's tokens the child begins with.
std::uint32_t num_tokens_of(const ForkRequest& child, const Request& parent) {
  return child.num_tokens == 0 ? static_cast<std::uint32_t>(parent.num_tokens()) : child.num_tokens;
}

// Returns the child as a new request with the parent's prompt, for checks.
NewRequest as_added(const ForkRequest& child, const Request& parent) {
  const std::uint32_t max_tokens = child.max_tokens.value_or(parent.stops.max_tokens);
  return {.id = child.id,
          .prompt = std::span(parent.tokens).first(static_cast<std::size_t>(parent.num_prompt_tokens)),
          .max_tokens = max_tokens,
          .min_tokens = std::min(parent.stops.min_tokens, max_tokens)};
}

Result<void> check_counts(const ForkRequest& child, const Request& parent, const CoreConfig& config) {
  const std::uint32_t num_tokens = num_tokens_of(child, parent);
  const auto num_prompt = static_cast<std::uint32_t>(parent.num_prompt_tokens);
  if (num_tokens < num_prompt || num_tokens > parent.tokens.size()) {
    return fail(
        ErrorCode::invalid_argument, "num_tokens", fmt::format("{} is out of range", num_tokens),
        fmt::format("use a value from {} (the parent's prompt tokens) to {} (all tokens of the parent)", num_prompt, parent.tokens.size()));
  }
  if (child.waits_for_input) return {};  // its outputs come after its input, so the limit is not checked here
  const NewRequest added = as_added(child, parent);
  const std::uint32_t num_outputs = num_tokens - num_prompt + (child.next_token.has_value() ? 1 : 0);
  if (const std::uint32_t most = max_tokens(added, config); num_outputs >= most && most > 0) {
    return fail(ErrorCode::invalid_argument, "max_tokens",
                fmt::format("is {}, but the fork already has {} output tokens", most, num_outputs),
                "increase it, or fork at an earlier token");
  }
  return {};
}

}  // namespace

Result<void> Forks::check(const Request& parent, const ForkRequest& child, std::size_t num_waiting) const {
  if (auto valid = check_kind(parent, context_.config); !valid) return valid;
  if (auto valid = check_request(as_added(child, parent), context_.config, context_.seams); !valid) return valid;
  if (auto valid = check_counts(child, parent, context_.config); !valid) return valid;
  if (child.waits_for_input && !child.resumable)
    return fail(ErrorCode::invalid_argument, "waits_for_input", "is set, but the child is not a session", "set resumable = true");
  return check_room(parent, num_waiting);
}

Result<void> Forks::check_room(const Request& parent, std::size_t num_waiting) const {
  if (num_waiting >= context_.config.scheduler.max_num_waiting)
    return fail(ErrorCode::overloaded, "max_num_waiting", fmt::format("{} requests are waiting already", num_waiting), "try again later");
  const std::uint32_t num_open = parent.family == 0 ? 1 : families_.at(parent.family);
  if (num_open >= context_.config.limits.max_fork_family) {
    return fail(ErrorCode::overloaded, "limits.max_fork_family", fmt::format("{} requests of one fork family have not ended", num_open),
                "try again when some of them have ended");
  }
  return {};
}

Result<void> Forks::fork_grammar(const Request& parent, const ForkRequest& child) {
  if (!parent.structured_output) return {};
  QUIRE_CHECK(context_.seams.grammar != nullptr, "a request with structured output has a grammar");
  const auto num_outputs = num_tokens_of(child, parent) - static_cast<std::uint32_t>(parent.num_prompt_tokens);
  if (!context_.seams.grammar->fork(parent.id, child.id, num_outputs)) return cannot("a request with this grammar");
  return {};
}

Request& Forks::create(Request& parent, const ForkRequest& given) {
  Request& child = create_request(parent, given);
  share_blocks(parent, child);
  join_family(parent, child);
  return child;
}

Request& Forks::create_request(const Request& parent, const ForkRequest& given) {
  Request& r = table_.create(given.id);
  const std::uint32_t num_tokens = num_tokens_of(given, parent);
  QUIRE_CHECK(num_tokens >= static_cast<std::uint32_t>(parent.num_prompt_tokens) && num_tokens <= parent.tokens.size(),
              "the child begins within the outputs of its parent");
  r.name = given.name;
  r.client_index = given.client_index;
  r.priority = parent.priority;
  r.arrival_time = given.arrival_time;
  r.num_prompt_tokens = parent.num_prompt_tokens;
  r.num_output_tokens = static_cast<std::int32_t>(num_tokens) - parent.num_prompt_tokens;
  r.stops = parent.stops;
  r.stops.max_tokens = max_tokens(as_added(given, parent), context_.config);
  r.stops.min_tokens = std::min(parent.stops.min_tokens, r.stops.max_tokens);
  r.skip_reading_prefix_cache = parent.skip_reading_prefix_cache;
  if (!parent.load.is_allowed()) r.load.num_attempts_left = 0;
  r.hash_inputs = parent.hash_inputs;
  r.features = parent.features;
  r.tags = {.tenant = parent.tags.tenant,
            .is_background = parent.tags.is_background,
            .retention_s = parent.tags.retention_s,
            .hints = parent.tags.hints};
  r.resumable = given.resumable;
  r.structured_output = parent.structured_output;
  if (given.waits_for_input) r.status = RequestStatus::waiting_for_input;
  if (parent.status == RequestStatus::waiting_for_grammar) r.status = RequestStatus::waiting_for_grammar;
  r.sampling = given.sampling;
  requests_.reserve_memory(r, std::size_t{num_tokens} + 1);
  r.tokens.assign(parent.tokens.begin(), parent.tokens.begin() + num_tokens);
  if (requests_.hashes_blocks()) r.hashes.assign(parent.hashes.begin(), parent.hashes.begin() + num_tokens / context_.config.block_size);
  if (given.next_token.has_value()) requests_.append_token(r, *given.next_token);
  return r;
}

void Forks::share_blocks(Request& parent, Request& child) {
  const bool waits_for_input = child.status == RequestStatus::waiting_for_input;
  // At least one token of the child must be computed, because its output is the next token. A child that waits for input needs no such
  // token. With mamba layers, it shares all computed tokens, because earlier states do not exist any more.
  const bool keeps_all = waits_for_input && context_.config.kv.has_mamba_layers();
  const std::int32_t num_computed = std::min({parent.num_computed_tokens, parent.num_tokens(), child.num_tokens() - (keeps_all ? 0 : 1)});
  // Known tokens of the parent in flight are written once; draft tokens may be overwritten.
  const auto next = static_cast<std::uint32_t>(std::min(parent.num_computed_tokens, parent.num_tokens()));
  // Blocks that a transfer still fills have no content yet. The child is looked up at its turn, when they may be loaded.
  const bool awaits_blocks = parent.swapped != nullptr || parent.status == RequestStatus::waiting_for_remote_kv;
  // A session whose blocks were reclaimed has no blocks to share. Its child has the same count of computed tokens.
  const bool gave_back = waits_for_input && context_.rules.idle_sessions_yield && Requests::num_blocks(parent) == 0;
  const bool shares = !awaits_blocks && !gave_back && num_computed > 0 &&
                      kv_.fork(requests_.kv_request(parent), next, child.blocks, static_cast<std::uint32_t>(num_computed));
  // Without blocks, these tokens are computed again when the child's input comes (sessions.cpp).
  if (shares || keeps_all || gave_back) child.num_computed_tokens = std::max(num_computed, 0);
  if (!shares || waits_for_input) return;
  QUIRE_CHECK(child.num_computed_tokens < child.num_tokens(), "at least one token is left to compute");
  sharing_.push_back(&child);
}

void Forks::join_family(Request& parent, Request& child) {
  if (parent.family == 0) {
    parent.family = ++last_family_;
    families_.emplace(parent.family, 1);
  }
  child.family = parent.family;
  ++families_.at(child.family);
  QUIRE_CHECK(families_.at(child.family) <= context_.config.limits.max_fork_family, "a family has at most max_fork_family requests");
}

void Forks::leave_family(Request& request) {
  if (request.family == 0) return;
  const auto family = families_.find(request.family);
  QUIRE_CHECK(family != families_.end() && family->second > 0, "each request of a family is counted until it ends");
  if (--family->second == 0) families_.erase(family);
  request.family = 0;
}

void Forks::stop_sharing(const Request& request) {
  if (!sharing_.empty()) [[unlikely]]
    std::erase(sharing_, &request);
}

bool Forks::release_a_share(EventCause cause, const Request* beneficiary) {
  const auto newest = std::find_if(sharing_.rbegin(), sharing_.rend(), [&](const Request* request) { return request != beneficiary; });
  if (newest == sharing_.rend()) return false;
  release_share_of(**newest, cause);
  return true;
}

void Forks::release_shares_of(std::span<const BlockId> sorted) {
  QUIRE_CHECK(std::ranges::is_sorted(sorted), "the blocks are sorted");
  const auto holds_one = [&](const Request* request) {
    return std::ranges::any_of(request->blocks.blocks(0), [&](BlockId block) { return std::ranges::binary_search(sorted, block); });
  };
  for (auto found = std::ranges::find_if(sharing_, holds_one); found != sharing_.end(); found = std::ranges::find_if(sharing_, holds_one))
    release_share_of(**found, EventCause::failed_transfer);
}

bool Forks::is_sharing(const Request& request) const {
  return std::ranges::find(sharing_, &request) != sharing_.end();
}

void Forks::release_share_of(Request& request, EventCause cause) {
  QUIRE_CHECK(request.status == RequestStatus::waiting && request.in_flight.num_plans == 0, "the request has never run");
  QUIRE_CHECK(request.num_computed_tokens > 0, "a request that shares blocks has computed tokens");
  if (context_.events.wanted())
    context_.events.on_event({.what = EventKind::unshared, .cause = cause, .owner = request.id, .amount = Requests::num_blocks(request)});
  stop_sharing(request);
  kv_.free(request.blocks);
  request.num_computed_tokens = 0;
}

void Forks::plan_copies(const Request& request, ScheduledKind kind, PlanArena& arena) const {
  for (std::uint32_t group = 0; group < context_.num_groups; ++group) {
    if (const std::optional<CopyOnWriteBlock> copy = request.blocks.copy_on_write_block(group)) [[unlikely]] {
      if (kind == ScheduledKind::running) arena.replace_block(request, group, *copy);
      arena.copy_block(request, group, *copy);
    }
  }
}

}  // namespace quire
