#include "core/schedule/request_check.h"

#include <fmt/format.h>

#include <algorithm>

namespace quire {
namespace {

// Keeps sums of two counts within 32 bits.
constexpr std::uint32_t kMaxCount = 1U << 30;

Result<void> check_range(const char* field, std::uint32_t value, std::uint32_t low) {
  if (value < low || value > kMaxCount) {
    return fail(ErrorCode::invalid_argument, field, fmt::format("is {}", value), fmt::format("give a value from {} to {}", low, kMaxCount));
  }
  return {};
}

Result<void> check_extra_keys(const ExtraKeys& extra, std::size_t num_prompt_tokens) {
  std::uint64_t end = 0;
  for (const MultimodalRange& range : extra.multimodal) {
    if (range.offset < end || std::uint64_t{range.offset} + range.num_tokens > num_prompt_tokens) {
      return fail(ErrorCode::invalid_argument, "multimodal",
                  fmt::format("the item at token {} overlaps another or leaves the prompt", range.offset),
                  "list the items in order, each within the prompt");
    }
    end = std::uint64_t{range.offset} + range.num_tokens;
  }
  return {};
}

// The last token is sampled and never computed, so it needs no place.
Result<void> check_fits_cache(const NewRequest& request, const SchedulerConfig& config) {
  const std::uint64_t capacity = std::uint64_t{config.num_blocks - 1} * config.block_size;
  if (max_total_tokens(request, config) - 1 <= capacity) {
    return {};
  }
  const bool prompt_fits = request.prompt.size() <= capacity;
  return fail(ErrorCode::invalid_argument, prompt_fits ? "max_tokens" : "prompt",
              fmt::format("{} prompt tokens and up to {} outputs exceed the KV cache of {} tokens", request.prompt.size(),
                          max_total_tokens(request, config) - request.prompt.size(), capacity),
              prompt_fits ? "ask for fewer tokens or give the cache more memory" : "shorten the prompt or give the cache more memory");
}

}  // namespace

Result<void> SchedulerConfig::validate() const {
  for (const auto& result :
       {check_range("block_size", block_size, 1), check_range("num_blocks", num_blocks, 2),
        check_range("max_num_seqs", scheduler.max_num_seqs, 1), check_range("max_num_batched_tokens", scheduler.max_num_batched_tokens, 1),
        check_range("max_model_len", scheduler.max_model_len, 2),
        check_range("long_prefill_token_threshold", scheduler.long_prefill_token_threshold, 0)}) {
    if (!result) {
      return result;
    }
  }
  if (!scheduler.enable_chunked_prefill && scheduler.max_num_batched_tokens < scheduler.max_model_len) {
    return fail(ErrorCode::invalid_argument, "max_num_batched_tokens",
                fmt::format("is {}, but without chunked prefill a step must hold a whole request of {} tokens",
                            scheduler.max_num_batched_tokens, scheduler.max_model_len),
                "raise it to max_model_len or enable chunked prefill");
  }
  return {};
}

std::uint32_t max_total_tokens(const NewRequest& request, const SchedulerConfig& config) {
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(request.prompt.size() + std::uint64_t{request.max_tokens}, config.scheduler.max_model_len));
}

Result<void> check_request(const NewRequest& request, const SchedulerConfig& config) {
  if (request.prompt.empty()) {
    return fail(ErrorCode::invalid_argument, "prompt", "is empty", "give at least one token");
  }
  if (request.prompt.size() >= config.scheduler.max_model_len) {
    return fail(
        ErrorCode::invalid_argument, "prompt",
        fmt::format("has {} tokens, and prompt and output together have at most {}", request.prompt.size(), config.scheduler.max_model_len),
        "shorten the prompt");
  }
  if (request.max_tokens == 0) {
    return fail(ErrorCode::invalid_argument, "max_tokens", "is 0", "ask for at least one token");
  }
  if (request.prompt.size() + request.min_tokens > max_total_tokens(request, config)) {
    return fail(ErrorCode::invalid_argument, "min_tokens",
                fmt::format("is {}, but at most {} can be generated", request.min_tokens,
                            max_total_tokens(request, config) - request.prompt.size()),
                "lower it, or raise max_tokens");
  }
  if (auto valid = check_extra_keys(request.extra_keys, request.prompt.size()); !valid) {
    return valid;
  }
  return check_fits_cache(request, config);
}

}  // namespace quire
