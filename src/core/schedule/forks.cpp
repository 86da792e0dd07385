// Forks: a child begins with its parent's tokens, and with the blocks that hold what of them is computed.
//
//   (none) -> waiting       fork: with its share, if the parent has computed anything
//   waiting -> running      as any other; what it has counts as computed (waiting.cpp)
//   waiting -> waiting      give_up_share: its share is gone, and it begins as one that was just added
//
// A block that is not full is shared too, until somebody writes to it (group_manager.cpp). What the parent has in flight does not matter:
// of tokens that are known, it is written before any later plan runs; a token that is not known yet is not the child's.
#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "core/schedule/request_check.h"
#include "core/schedule/state.h"

namespace quire {
namespace {

Result<void> cannot(const char* what) {
  return fail(ErrorCode::unsupported, "parent", fmt::format("{} cannot be forked", what), "add a request with the same tokens");
}

Result<void> check_kind(const Request& parent, const CoreConfig& config, const CoreSeams& seams) {
  if (parent.pooling) return cannot("a pooling request");
  if (parent.structured_output) return cannot("structured output");
  if (seams.connector != nullptr) return cannot("a request whose blocks a connector may fill");
  if (config.encoder.is_encoder_decoder || config.kv.has_mamba_layers()) return cannot("a request of a model with states");
  return {};
}

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
  const NewRequest added = as_added(child, parent);
  if (const std::uint32_t most = max_tokens(added, config); num_tokens - num_prompt >= most && most > 0) {
    return fail(ErrorCode::invalid_argument, "max_tokens",
                fmt::format("is {}, and {} outputs are there already", most, num_tokens - num_prompt),
                "raise it, or fork where the parent has fewer tokens");
  }
  return {};
}

}  // namespace

Result<void> Core::fork(RequestId parent_id, const ForkRequest& child, const StepInput& input) {
  State& s = *state_;
  Request* parent = s.table.find_any(parent_id);
  if (parent == nullptr)
    return fail(ErrorCode::not_found, "parent", fmt::format("no request {}", parent_id.value), "fork one that is open");
  if (parent->finished())
    return fail(ErrorCode::invalid_argument, "parent", fmt::format("request {} has ended", parent_id.value), "fork one that is open");
  if (s.table.find_any(child.id) != nullptr)
    return fail(ErrorCode::invalid_argument, "id", fmt::format("{} is in use", child.id.value), "give each request an id of its own");
  if (auto valid = check_kind(*parent, s.config, s.seams); !valid) return valid;
  if (auto valid = check_request(as_added(child, *parent), s.config, s.seams); !valid) return valid;
  if (auto valid = check_counts(child, *parent, s.config); !valid) return valid;
  if (auto valid = s.check_room_for_fork(*parent); !valid) return valid;
  s.begin_call(input);
  Request& created = s.create_fork(*parent, child);
  s.share_blocks(*parent, created);
  s.join_family(*parent, created);
  if (s.events.wanted())
    s.events.on_event({.what = EventKind::forked, .owner = parent_id, .beneficiary = child.id, .amount = s.num_blocks(created)});
  if (s.agent) s.join_job(created, input.now);
  s.waiting.prepend(created);
  s.record(created, RequestEventKind::queued, input.now);
  ++s.totals.num_forks;
  return {};
}

Result<void> Core::State::check_room_for_fork(const Request& parent) const {
  const std::size_t num_waiting = waiting.size() + skipped_waiting.size();
  if (num_waiting >= config.scheduler.max_num_waiting)
    return fail(ErrorCode::overloaded, "max_num_waiting", fmt::format("{} requests are waiting already", num_waiting), "try again later");
  const std::uint32_t num_open = parent.family == 0 ? 1 : families.at(parent.family);
  if (num_open >= config.limits.max_fork_family) {
    return fail(ErrorCode::overloaded, "limits.max_fork_family", fmt::format("{} requests that were forked from one are open", num_open),
                "fork again when some have ended");
  }
  return {};
}

Request& Core::State::create_fork(const Request& parent, const ForkRequest& given) {
  Request& r = table.create(given.id);
  const std::uint32_t num_tokens = num_tokens_of(given, parent);
  r.name = given.name;
  r.client_index = given.client_index;
  r.priority = parent.priority;
  r.arrival_time = given.arrival_time;
  r.num_prompt_tokens = parent.num_prompt_tokens;
  r.num_output_tokens = static_cast<std::int32_t>(num_tokens) - parent.num_prompt_tokens;
  r.max_tokens = max_tokens(as_added(given, parent), config);
  r.min_tokens = std::min(parent.min_tokens, r.max_tokens);
  r.eos_ids = parent.eos_ids;
  r.stop_token_ids = parent.stop_token_ids;
  r.repetition = parent.repetition;
  r.skip_reading_prefix_cache = parent.skip_reading_prefix_cache;
  r.lora_id = parent.lora_id;
  r.lora_name = parent.lora_name;
  r.cache_salt = parent.cache_salt;
  r.features = parent.features;
  r.prompt_embeds = parent.prompt_embeds;
  r.embed_bytes = parent.embed_bytes;
  r.tags.tenant = parent.tags.tenant;
  r.sampling = given.sampling;
  reserve_memory(r, num_tokens);
  r.tokens.assign(parent.tokens.begin(), parent.tokens.begin() + num_tokens);
  if (names_blocks()) r.hashes.assign(parent.hashes.begin(), parent.hashes.begin() + num_tokens / config.block_size);
  return r;
}

void Core::State::share_blocks(Request& parent, Request& child) {
  const std::int32_t num_computed = std::min(parent.num_computed_tokens, child.num_tokens() - 1);
  // Its own tokens in flight are written, and those of drafts may be again.
  const auto next = static_cast<std::uint32_t>(std::min(parent.num_computed_tokens, parent.num_tokens()));
  if (num_computed <= 0 || !kv.fork(kv_request(parent), next, child.blocks, static_cast<std::uint32_t>(num_computed))) return;
  child.num_computed_tokens = num_computed;
  sharing.push_back(&child);
}

void Core::State::join_family(Request& parent, Request& child) {
  if (parent.family == 0) {
    parent.family = ++last_family;
    families.emplace(parent.family, 1);
  }
  child.family = parent.family;
  ++families.at(child.family);
}

void Core::State::leave_family(Request& request) {
  if (request.family == 0) return;
  const auto family = families.find(request.family);
  QUIRE_CHECK(family != families.end() && family->second > 0, "each is counted until it ends");
  if (--family->second == 0) families.erase(family);
  request.family = 0;
}

// It waits no more.
void Core::State::leave_sharing(const Request& request) {
  if (!sharing.empty()) [[unlikely]]
    std::erase(sharing, &request);
}

bool Core::State::give_up_share(EventCause cause, const Request* beneficiary) {
  const auto newest = std::find_if(sharing.rbegin(), sharing.rend(), [&](const Request* request) { return request != beneficiary; });
  if (newest == sharing.rend()) return false;
  Request& request = **newest;
  QUIRE_CHECK(request.status == RequestStatus::waiting && request.num_in_flight == 0, "it has never run");
  if (events.wanted()) events.on_event({.what = EventKind::unshared, .cause = cause, .owner = request.id, .amount = num_blocks(request)});
  sharing.erase(std::next(newest).base());
  kv.free(request.blocks);
  request.num_computed_tokens = 0;
  return true;
}

void Core::State::plan_copies(const Request& request, ScheduledKind kind, PlanArena& arena) {
  for (std::uint32_t group = 0; group < num_groups; ++group) {
    if (const std::optional<OwnCopy> copy = request.blocks.own_copy(group)) [[unlikely]] {
      if (kind == ScheduledKind::running) arena.replace_block(request, group, *copy);
      arena.copy_block(request, group, *copy);
    }
  }
}

}  // namespace quire
