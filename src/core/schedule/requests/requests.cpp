// Creates requests, hashes their blocks, and makes views of requests for the KV cache and for other code. Called by every part of the
// scheduler, on the core's thread. Memory for all tokens and blocks that a request can ever have is reserved before it first runs, because
// plans contain views of its tokens, which must not move.
#include "core/schedule/requests/requests.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "core/schedule/requests/request_check.h"

namespace quire {

namespace {

// Room for tokens that are sampled before a limit is detected.
constexpr std::uint64_t kSpareTokens = 8;

}  // namespace

Request& Requests::create(const NewRequest& given) {
  Request& request = table_.create(given.id);
  fill(request, given);
  return request;
}

void Requests::fill(Request& r, const NewRequest& given) {
  r.name = given.name;
  r.client_index = given.client_index;
  r.priority = given.priority;
  r.arrival_time = given.arrival_time;
  QUIRE_CHECK(!given.prompt.empty(), "the prompt is not empty");
  r.num_prompt_tokens = static_cast<std::int32_t>(given.prompt.size());
  if (given.prompt_storage != nullptr) {
    QUIRE_CHECK(given.prompt.data() == given.prompt_storage->data() && given.prompt.size() == given.prompt_storage->size(),
                "the prompt covers all of its storage");
    // Moves long prompts instead of copying them.
    r.tokens = std::move(*given.prompt_storage);
  } else {
    r.tokens.assign(given.prompt.begin(), given.prompt.end());
  }
  // A pooling request ends when its prompt is computed.
  r.stops.max_tokens = given.pooling ? 1 : max_tokens(given, context_.config);
  r.stops.min_tokens = given.min_tokens;
  r.stops.eos_ids.assign(given.eos_ids.begin(), given.eos_ids.end());
  r.stops.stop_token_ids.assign(given.stop_token_ids.begin(), given.stop_token_ids.end());
  r.stops.repetition = given.repetition;
  r.pooling = given.pooling;
  r.structured_output = given.structured_output && !given.pooling;
  r.status = r.structured_output ? RequestStatus::waiting_for_grammar : RequestStatus::waiting;
  r.resumable = given.resumable;
  r.skip_reading_prefix_cache = given.skip_reading_prefix_cache;
  if (given.loads_nothing) r.load.num_attempts_left = 0;
  r.hash_inputs.lora_id = given.lora_id;
  r.hash_inputs.lora_name = given.lora_name;
  r.hash_inputs.lora_path = given.lora_path;
  r.hash_inputs.cache_salt = given.cache_salt;
  r.features.assign(given.multimodal.begin(), given.multimodal.end());
  if (given.tags != nullptr) r.tags = *given.tags;
  r.sampling = given.sampling;
  if (hashes_blocks() && !given.prompt_embeds.empty()) {
    r.hash_inputs.prompt_embeds.assign(given.prompt_embeds.begin(), given.prompt_embeds.end());
    r.hash_inputs.embed_bytes = given.prompt_embeds.size() / given.prompt.size();
  }
  const std::size_t hash_bytes = hash_size(context_.config.prefix_cache.hash);
  if (hashes_blocks()) r.hashes.reserve(given.block_hashes.size() / hash_bytes);
  for (std::size_t at = 0; hashes_blocks() && at + hash_bytes <= given.block_hashes.size(); at += hash_bytes)
    std::memcpy(r.hashes.emplace_back().bytes.data(), &given.block_hashes[at], hash_bytes);
  hash_blocks(r);
}

void Requests::append_token(Request& request, TokenId token) {
  QUIRE_CHECK(request.known, "only a known request gets tokens");
  request.tokens.push_back(token);
  ++request.num_output_tokens;
  hash_blocks(request);
}

void Requests::hash_blocks(Request& request) {
  if (hashes_blocks() && request.tokens.size() >= (request.hashes.size() + 1) * context_.config.block_size)
    hash_full_blocks(context_.seams.hash != nullptr ? *context_.seams.hash : *hash_, content(request), context_.config.block_size,
                     request.hashes);
}

// Reserves memory for all tokens that the request can have, so that no step allocates and the tokens do not move while a plan refers to
// them.
void Requests::reserve_memory(Request& request, std::size_t num_known_tokens) {
  const std::uint64_t limit = std::max<std::uint64_t>(context_.config.scheduler.max_model_len, num_known_tokens) + kSpareTokens;
  const std::uint64_t wanted =
      std::uint64_t{static_cast<std::uint32_t>(request.num_prompt_tokens)} + request.stops.max_tokens + kSpareTokens;
  const auto num_tokens =
      static_cast<std::uint32_t>(std::min(limit, std::max<std::uint64_t>(wanted, num_known_tokens)) +
                                 context_.config.speculation.num_spec_tokens + context_.config.speculation.num_lookahead_tokens);
  request.tokens.reserve(num_tokens);
  request.draft_tokens.reserve(context_.config.speculation.num_spec_tokens);
  if (hashes_blocks()) request.hashes.reserve(num_tokens / context_.config.block_size);
  kv_.reserve(request.blocks, num_tokens);
}

void Requests::forget_loaded(Request& request) {
  QUIRE_CHECK(request.slot == kNoSlot && !is_loading(request), "no step and no load uses the blocks of the request");
  if (request.status == RequestStatus::waiting_for_remote_kv)
    request.status = request.num_preemptions > 0 ? RequestStatus::preempted : RequestStatus::waiting;
  request.load.received = false;
  request.load.early = false;
  request.load.failure = LoadFailure::none;
  request.num_computed_tokens = 0;
  kv_.free(request.blocks);
}

void Requests::free_blocks(Request& request) {
  QUIRE_CHECK(request.slot == kNoSlot && request.in_flight.num_plans == 0 && !is_loading(request),
              "no step and no load uses the blocks of the request");
  kv_.free(request.blocks);
}

void Requests::note_lost_load(Request& request) const {
  if (context_.rules.unloaded_begin_anew && request.load.is_allowed()) --request.load.num_attempts_left;
}

void Requests::record(Request& request, RequestEventKind kind, double timestamp) {
  if (context_.config.report.log_stats) request.events.push_back({kind, timestamp});
}

RequestContent Requests::content(const Request& request) const {
  return {.tokens = request.tokens,
          .lora_name = request.hash_inputs.lora_name,
          .multimodal = request.features,
          .cache_salt = request.hash_inputs.cache_salt,
          .prompt_embeds = {request.hash_inputs.prompt_embeds, request.hash_inputs.embed_bytes},
          .lora_path = request.hash_inputs.lora_path,
          .tagged_keys = context_.rules.tagged_keys};
}

KvRequest Requests::kv_request(Request& request) {
  QUIRE_CHECK(request.num_computed_tokens >= 0, "the number of computed tokens is not negative");
  KvRequest kv_view{.blocks = request.blocks,
                    .hashes = request.hashes,
                    .num_tokens = static_cast<std::uint32_t>(request.num_tokens()),
                    .num_computed_tokens = static_cast<std::uint32_t>(request.num_computed_tokens),
                    .num_prompt_tokens = static_cast<std::uint32_t>(request.num_prompt_tokens),
                    .shared_prefix_boundary = request.shared_prefix_boundary,
                    .skip_reading_prefix_cache = request.skip_reading_prefix_cache,
                    .was_preempted = request.num_preemptions > 0};
  // Events of the cache belong to the request for which the cache is called.
  context_.events.current = request.id;
  if (context_.config.report.enable_kv_events) {
    kv_content_ = content(request);
    kv_view.content = &kv_content_;
    kv_view.lora_id = request.hash_inputs.lora_id;
  }
  return kv_view;
}

RequestView Requests::view(const Request& request) {
  static_assert(sizeof(BlockHash) == 32, "block hashes are contiguous in memory");
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
          .discard_latest_async_tokens = request.in_flight.discards_latest_token,
          .num_tokens_in_flight = request.in_flight.num_tokens,
          .num_stale_tokens = request.in_flight.num_stale_tokens,
          .drops_stale = request.in_flight.drops_stale_tokens,
          .block_hashes = {names, request.hashes.size() * sizeof(BlockHash)},
          .num_blocks = num_blocks(request),
          .tags = &request.tags,
          .priority = request.priority,
          .arrival_time = request.arrival_time,
          .max_tokens = request.stops.max_tokens,
          .num_encoder_inputs = static_cast<std::uint32_t>(request.features.size()),
          .resumable = request.resumable,
          .cache_salt = request.hash_inputs.cache_salt,
          .stop_token = request.stop_token};
}

std::uint32_t Requests::num_blocks(const Request& request) {
  std::size_t num_blocks = 0;
  for (std::uint32_t group = 0; group < request.blocks.num_groups(); ++group) num_blocks += request.blocks.blocks(group).size();
  return static_cast<std::uint32_t>(num_blocks);
}

GroupBlocks Requests::group_blocks(const Request& request) {
  group_views_.clear();
  for (std::uint32_t group = 0; group < context_.num_groups; ++group) group_views_.push_back(request.blocks.blocks(group));
  QUIRE_CHECK(group_views_.size() == context_.num_groups, "there is a block list for each cache group");
  return group_views_;
}

GroupBlocks Requests::computed_blocks(const Request& request) {
  QUIRE_CHECK(group_blocks(request).size() == context_.num_groups, "there is a block list for each cache group");
  for (std::uint32_t group = 0; group < context_.num_groups; ++group) {
    const std::uint32_t size = kv_.block_size(group);
    const std::size_t end = (static_cast<std::size_t>(std::max(request.num_computed_tokens, 0)) + size - 1) / size;
    group_views_[group] = group_views_[group].first(std::min(group_views_[group].size(), end));
  }
  return group_views_;
}

}  // namespace quire
