// A request from outside becomes one of the scheduler's, and what every part of the scheduler does with one.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "core/schedule/request_check.h"
#include "core/schedule/state.h"

namespace quire {
namespace {

// Room beyond the limits for tokens that were sampled before a limit was seen.
constexpr std::uint64_t kSpareTokens = 8;

}  // namespace

Result<void> Core::add(const NewRequest& request, const StepInput& input) {
  State& s = *state_;
  if (s.table.find_any(request.id) != nullptr)
    return fail(ErrorCode::invalid_argument, "id", fmt::format("{} is in use", request.id.value), "give each request an id of its own");
  if (auto valid = check_request(request, s.config, s.seams); !valid) return valid;
  const std::size_t num_waiting = s.waiting.size() + s.skipped_waiting.size();
  if (num_waiting >= s.config.scheduler.max_num_waiting)
    return fail(ErrorCode::overloaded, "max_num_waiting", fmt::format("{} requests are waiting already", num_waiting), "try again later");
  Request& created = s.create_request(request);
  if (s.agent) s.join_job(created, input.now);
  s.enqueue(created, input.now);
  s.record(created, RequestEventKind::queued, input.now);
  return {};
}

Request& Core::State::create_request(const NewRequest& given) {
  Request& r = table.create(given.id);
  r.name = given.name;
  r.client_index = given.client_index;
  r.priority = given.priority;
  r.arrival_time = given.arrival_time;
  r.num_prompt_tokens = static_cast<std::int32_t>(given.prompt.size());
  if (given.prompt_storage != nullptr) {
    QUIRE_CHECK(given.prompt.data() == given.prompt_storage->data() && given.prompt.size() == given.prompt_storage->size(),
                "the prompt is the whole of its storage");
    r.tokens = std::move(*given.prompt_storage);
  } else {
    r.tokens.assign(given.prompt.begin(), given.prompt.end());
  }
  r.max_tokens = given.pooling ? 1 : max_tokens(given, config);
  r.min_tokens = given.min_tokens;
  r.eos_ids.assign(given.eos_ids.begin(), given.eos_ids.end());
  r.stop_token_ids.assign(given.stop_token_ids.begin(), given.stop_token_ids.end());
  r.repetition = given.repetition;
  r.pooling = given.pooling;
  r.structured_output = given.structured_output && !given.pooling;
  r.status = r.structured_output ? RequestStatus::waiting_for_grammar : RequestStatus::waiting;
  r.resumable = given.resumable;
  r.skip_reading_prefix_cache = given.skip_reading_prefix_cache;
  r.lora_id = given.lora_id;
  r.lora_name = given.lora_name;
  r.cache_salt = given.cache_salt;
  r.features.assign(given.multimodal.begin(), given.multimodal.end());
  if (given.tags != nullptr) r.tags = *given.tags;
  r.sampling = given.sampling;
  if (names_blocks() && !given.prompt_embeds.empty()) {
    r.prompt_embeds.assign(given.prompt_embeds.begin(), given.prompt_embeds.end());
    r.embed_bytes = given.prompt_embeds.size() / given.prompt.size();
  }
  const std::size_t hash_bytes = hash_size(config.prefix_cache.hash);
  if (names_blocks()) r.hashes.reserve(given.block_hashes.size() / hash_bytes);
  for (std::size_t at = 0; names_blocks() && at + hash_bytes <= given.block_hashes.size(); at += hash_bytes)
    std::memcpy(r.hashes.emplace_back().bytes.data(), &given.block_hashes[at], hash_bytes);
  name_blocks(r);
  return r;
}

void Core::State::enqueue(Request& request, double time) {
  const bool passed_over = blocked(request);
  if (agent) note_entry(request, passed_over ? QueueName::skipped : QueueName::waiting, time);
  (passed_over ? skipped_waiting : waiting).add(request);
}

void Core::State::append_token(Request& request, TokenId token) {
  request.tokens.push_back(token);
  ++request.num_output_tokens;
  name_blocks(request);
}

void Core::State::name_blocks(Request& request) {
  if (names_blocks() && request.tokens.size() >= (request.hashes.size() + 1) * config.block_size)
    hash_full_blocks(seams.hash != nullptr ? *seams.hash : *hash, content(request), config.block_size, request.hashes);
}

// Nothing of it moves while a plan shows it, and no step allocates.
void Core::State::reserve_memory(Request& request, std::size_t num_known_tokens) {
  const std::uint64_t limit = std::max<std::uint64_t>(config.scheduler.max_model_len, num_known_tokens) + kSpareTokens;
  const std::uint64_t wanted = std::uint64_t{static_cast<std::uint32_t>(request.num_prompt_tokens)} + request.max_tokens + kSpareTokens;
  const auto num_tokens = static_cast<std::uint32_t>(std::min(limit, std::max<std::uint64_t>(wanted, num_known_tokens)) +
                                                     config.speculation.num_spec_tokens + config.speculation.num_lookahead_tokens);
  request.tokens.reserve(num_tokens);
  request.draft_tokens.reserve(config.speculation.num_spec_tokens);
  if (names_blocks()) request.hashes.reserve(num_tokens / config.block_size);
  kv.reserve(request.blocks, num_tokens);
}

void Core::State::record(Request& request, RequestEventKind kind, double timestamp) {
  if (config.report.log_stats) request.events.push_back({kind, timestamp});
}

void Core::State::release_slot(Request& request) {
  QUIRE_CHECK(request.slot != kNoSlot);
  QUIRE_CHECK(free_slots.size() < config.scheduler.max_num_seqs, "a slot has one owner");
  free_slots.push_back(request.slot);
  released.push_back(request.slot);
  request.slot = kNoSlot;
}

RequestContent Core::State::content(const Request& request) const {
  return {.tokens = request.tokens,
          .lora_name = request.lora_name,
          .multimodal = request.features,
          .cache_salt = request.cache_salt,
          .prompt_embeds = {request.prompt_embeds, request.embed_bytes}};
}

KvRequest Core::State::kv_request(Request& request) {
  QUIRE_CHECK(request.num_computed_tokens >= 0, "a count");
  KvRequest kv_view{.blocks = request.blocks,
                    .hashes = request.hashes,
                    .num_tokens = static_cast<std::uint32_t>(request.num_tokens()),
                    .num_computed_tokens = static_cast<std::uint32_t>(request.num_computed_tokens),
                    .skip_reading_prefix_cache = request.skip_reading_prefix_cache,
                    .was_preempted = request.num_preemptions > 0};
  events.current = request.id;
  if (config.report.enable_kv_events) {
    kv_content = content(request);
    kv_view.content = &kv_content;
    kv_view.lora_id = request.lora_id;
  }
  return kv_view;
}

RequestView Core::State::view(const Request& request) const {
  static_assert(sizeof(BlockHash) == 32, "names lie one after the other");
  const auto* names = reinterpret_cast<const std::uint8_t*>(request.hashes.data());
  return {.id = request.id,
          .name = request.name,
          .status = request.status,
          .client_index = request.client_index,
          .tokens = request.tokens,
          .num_prompt_tokens = static_cast<std::uint32_t>(request.num_prompt_tokens),
          .draft_tokens = request.draft_tokens,
          .num_computed_tokens = static_cast<std::uint32_t>(std::max(request.num_computed_tokens, 0)),
          .num_output_placeholders = request.num_output_placeholders,
          .num_cached_tokens = request.num_cached_tokens,
          .num_external_computed_tokens = request.num_external_computed_tokens,
          .num_preemptions = request.num_preemptions,
          .is_prefill_chunk = request.is_prefill_chunk,
          .discard_latest_async_tokens = request.discard_latest_async_tokens,
          .block_hashes = {names, request.hashes.size() * sizeof(BlockHash)},
          .num_blocks = num_blocks(request),
          .tags = &request.tags,
          .priority = request.priority,
          .arrival_time = request.arrival_time,
          .max_tokens = request.max_tokens,
          .num_encoder_inputs = static_cast<std::uint32_t>(request.features.size()),
          .resumable = request.resumable,
          .cache_salt = request.cache_salt,
          .stop_token = request.stop_token};
}

std::uint32_t Core::State::num_blocks(const Request& request) const {
  std::size_t num_blocks = 0;
  for (std::uint32_t group = 0; group < num_groups; ++group) num_blocks += request.blocks.blocks(group).size();
  return static_cast<std::uint32_t>(num_blocks);
}

GroupBlocks Core::State::group_blocks(const Request& request) {
  group_views.clear();
  for (std::uint32_t group = 0; group < num_groups; ++group) group_views.push_back(request.blocks.blocks(group));
  return group_views;
}

}  // namespace quire
