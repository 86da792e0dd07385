#pragma once
// Checks configurations and requests when they enter the core.
#include <cstdint>

#include "core/kv/kv_cache_manager.h"
#include "quire/base/error.h"
#include "quire/core.h"

namespace quire {

// Maximum initial capacity of the request table for waiting requests. The table grows beyond it if needed.
inline constexpr std::uint32_t kExpectedWaiting = 4096;

// Returns the options of the KV cache for a valid configuration.
KvCacheOptions kv_cache_options(const CoreConfig& config, const DecisionRules& rules);

// Returns the request's max_tokens, limited to what max_model_len leaves after the prompt. With admit_oversized, returns it unchanged.
std::uint32_t max_tokens(const NewRequest& request, const CoreConfig& config);

// Returns an error that names the field if the request can never finish under this configuration. With admit_oversized, checks only what
// the core itself requires.
Result<void> check_request(const NewRequest& request, const CoreConfig& config, const CoreSeams& seams);

}  // namespace quire
