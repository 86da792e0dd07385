// How a child comes to share its parent's tokens and blocks. Called by Core::fork() after its checks, and by the loops for copies; always
// on the core's thread. Nothing here computes or copies bytes: a plan names the blocks to be copied. A share is a courtesy: where blocks
// lack it is given up before anybody is preempted, and the child is computed like any other request.
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
  if (config.encoder.is_encoder_decoder) return cannot("a request of an encoder's");
  return {};
}

// Of the parent's.
std::uint32_t num_tokens_of(const ForkRequest& child, const Request& parent) {
  return child.num_tokens == 0 ? static_cast<std::uint32_t>(parent.num_tokens()) : child.num_tokens;
}

// As if it were added with the parent's prompt.
NewRequest as_added(const ForkRequest& child, const Request& parent) {
  const std::uint32_t max_tokens = child.max_tokens.value_or(parent.max_tokens);
  return {.id = child.id,
          .prompt = std::span(parent.tokens).first(static_cast<std::size_t>(parent.num_prompt_tokens)),
          .max_tokens = max_tokens,
          .min_tokens = std::min(parent.min_tokens, max_tokens)};
}

Result<void> check_counts(const ForkRequest& child, const Request& parent, const CoreConfig& config) {
  const std::uint32_t num_tokens = num_tokens_of(child, parent);
  const auto num_prompt = static_cast<std::uint32_t>(parent.num_prompt_tokens);
  if (num_tokens < num_prompt || num_tokens > parent.tokens.size()) {
    return fail(ErrorCode::invalid_argument, "num_tokens", fmt::format("is {}", num_tokens),
                fmt::format("the parent has {} prompt tokens, and {} in all: fork between these", num_prompt, parent.tokens.size()));
  }
  if (child.waits_for_input) return {};  // what it is to put out comes behind its input
  const NewRequest added = as_added(child, parent);
  const std::uint32_t num_outputs = num_tokens - num_prompt + (child.next_token.has_value() ? 1 : 0);
  if (const std::uint32_t most = max_tokens(added, config); num_outputs >= most && most > 0) {
    return fail(ErrorCode::invalid_argument, "max_tokens", fmt::format("is {}, and {} outputs are there already", most, num_outputs),
                "raise it, or fork where the parent has fewer tokens");
  }
  return {};
}

}  // namespace

Result<void> Forks::check(const Request& parent, const ForkRequest& child, std::size_t num_waiting) const {
  if (auto valid = check_kind(parent, context_.config); !valid) return valid;
  if (auto valid = check_request(as_added(child, parent), context_.config, context_.seams); !valid) return valid;
  if (auto valid = check_counts(child, parent, context_.config); !valid) return valid;
  if (child.waits_for_input && !child.resumable)
    return fail(ErrorCode::invalid_argument, "waits_for_input", "is given, and the child is no session", "make it resumable");
  return check_room(parent, num_waiting);
}

Result<void> Forks::check_room(const Request& parent, std::size_t num_waiting) const {
  if (num_waiting >= context_.config.scheduler.max_num_waiting)
    return fail(ErrorCode::overloaded, "max_num_waiting", fmt::format("{} requests are waiting already", num_waiting), "try again later");
  const std::uint32_t num_open = parent.family == 0 ? 1 : families_.at(parent.family);
  if (num_open >= context_.config.limits.max_fork_family) {
    return fail(ErrorCode::overloaded, "limits.max_fork_family", fmt::format("{} requests that were forked from one are open", num_open),
                "fork again when some have ended");
  }
  return {};
}

Result<void> Forks::fork_grammar(const Request& parent, const ForkRequest& child) {
  if (!parent.structured_output) return {};
  QUIRE_CHECK(context_.seams.grammar != nullptr, "structured output was taken in with a grammar");
  const auto num_outputs = num_tokens_of(child, parent) - static_cast<std::uint32_t>(parent.num_prompt_tokens);
  if (!context_.seams.grammar->fork(parent.id, child.id, num_outputs)) return cannot("structured output, here,");
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
              "check() goes before");
  r.name = given.name;
  r.client_index = given.client_index;
  r.priority = parent.priority;
  r.arrival_time = given.arrival_time;
  r.num_prompt_tokens = parent.num_prompt_tokens;
  r.num_output_tokens = static_cast<std::int32_t>(num_tokens) - parent.num_prompt_tokens;
  r.max_tokens = max_tokens(as_added(given, parent), context_.config);
  r.min_tokens = std::min(parent.min_tokens, r.max_tokens);
  r.eos_ids = parent.eos_ids;
  r.stop_token_ids = parent.stop_token_ids;
  r.repetition = parent.repetition;
  r.skip_reading_prefix_cache = parent.skip_reading_prefix_cache;
  r.loads_nothing = parent.loads_nothing;
  r.lora_id = parent.lora_id;
  r.lora_name = parent.lora_name;
  r.lora_path = parent.lora_path;
  r.cache_salt = parent.cache_salt;
  r.features = parent.features;
  r.prompt_embeds = parent.prompt_embeds;
  r.embed_bytes = parent.embed_bytes;
  r.tags = {.tenant = parent.tags.tenant, .hints = parent.tags.hints};
  r.resumable = given.resumable;
  r.structured_output = parent.structured_output;
  if (given.waits_for_input) r.status = RequestStatus::waiting_for_input;
  if (parent.status == RequestStatus::waiting_for_grammar) r.status = RequestStatus::waiting_for_grammar;
  r.sampling = given.sampling;
  requests_.reserve_memory(r, std::size_t{num_tokens} + 1);
  r.tokens.assign(parent.tokens.begin(), parent.tokens.begin() + num_tokens);
  if (requests_.names_blocks()) r.hashes.assign(parent.hashes.begin(), parent.hashes.begin() + num_tokens / context_.config.block_size);
  if (given.next_token.has_value()) requests_.append_token(r, *given.next_token);
  return r;
}

void Forks::share_blocks(Request& parent, Request& child) {
  const bool waits_for_input = child.status == RequestStatus::waiting_for_input;
  // A child leaves a token to sample behind. One that waits for input needs none: as its parent's, its answer ends with what is computed;
  // and states behind the token before are not kept.
  const bool keeps_all = waits_for_input && context_.config.kv.has_mamba_layers();
  const std::int32_t num_computed = std::min({parent.num_computed_tokens, parent.num_tokens(), child.num_tokens() - (keeps_all ? 0 : 1)});
  // Its own tokens in flight are written, and those of drafts may be again.
  const auto next = static_cast<std::uint32_t>(std::min(parent.num_computed_tokens, parent.num_tokens()));
  // What a transfer is to fill holds nothing yet. The child is looked up in its turn, by when that may have come.
  const bool awaits_blocks = parent.swapped != nullptr || parent.status == RequestStatus::waiting_for_remote_kv;
  const bool shares = !awaits_blocks && num_computed > 0 &&
                      kv_.fork(requests_.kv_request(parent), next, child.blocks, static_cast<std::uint32_t>(num_computed));
  // Without blocks these are computed anew when its input comes (sessions.cpp).
  if (shares || keeps_all) child.num_computed_tokens = std::max(num_computed, 0);
  if (!shares || waits_for_input) return;
  QUIRE_CHECK(child.num_computed_tokens < child.num_tokens(), "a token is left to sample behind");
  sharing_.push_back(&child);
}

void Forks::join_family(Request& parent, Request& child) {
  if (parent.family == 0) {
    parent.family = ++last_family_;
    families_.emplace(parent.family, 1);
  }
  child.family = parent.family;
  ++families_.at(child.family);
  QUIRE_CHECK(families_.at(child.family) <= context_.config.limits.max_fork_family, "a family keeps to its bound");
}

void Forks::leave_family(Request& request) {
  if (request.family == 0) return;
  const auto family = families_.find(request.family);
  QUIRE_CHECK(family != families_.end() && family->second > 0, "each is counted until it ends");
  if (--family->second == 0) families_.erase(family);
  request.family = 0;
}

void Forks::leave_sharing(const Request& request) {
  if (!sharing_.empty()) [[unlikely]]
    std::erase(sharing_, &request);
}

bool Forks::give_up_share(EventCause cause, const Request* beneficiary) {
  const auto newest = std::find_if(sharing_.rbegin(), sharing_.rend(), [&](const Request* request) { return request != beneficiary; });
  if (newest == sharing_.rend()) return false;
  give_up_share_of(**newest, cause);
  return true;
}

void Forks::give_up_shares_of(std::span<const BlockId> sorted) {
  QUIRE_CHECK(std::ranges::is_sorted(sorted), "blocks are looked for by halves");
  const auto holds_one = [&](const Request* request) {
    return std::ranges::any_of(request->blocks.blocks(0), [&](BlockId block) { return std::ranges::binary_search(sorted, block); });
  };
  for (auto found = std::ranges::find_if(sharing_, holds_one); found != sharing_.end(); found = std::ranges::find_if(sharing_, holds_one))
    give_up_share_of(**found, EventCause::failed_transfer);
}

bool Forks::is_sharing(const Request& request) const {
  return std::ranges::find(sharing_, &request) != sharing_.end();
}

void Forks::give_up_share_of(Request& request, EventCause cause) {
  QUIRE_CHECK(request.status == RequestStatus::waiting && request.num_in_flight == 0, "it has never run");
  QUIRE_CHECK(request.num_computed_tokens > 0, "who shares has something");
  if (context_.events.wanted())
    context_.events.on_event({.what = EventKind::unshared, .cause = cause, .owner = request.id, .amount = Requests::num_blocks(request)});
  leave_sharing(request);
  kv_.free(request.blocks);
  request.num_computed_tokens = 0;
}

void Forks::plan_copies(const Request& request, ScheduledKind kind, PlanArena& arena) const {
  for (std::uint32_t group = 0; group < context_.num_groups; ++group) {
    if (const std::optional<OwnCopy> copy = request.blocks.own_copy(group)) [[unlikely]] {
      if (kind == ScheduledKind::running) arena.replace_block(request, group, *copy);
      arena.copy_block(request, group, *copy);
    }
  }
}

}  // namespace quire
