#pragma once
// The border of the core: checks that configurations and requests can work.
#include <cstdint>

#include "core/kv/kv_cache_manager.h"
#include "quire/base/error.h"
#include "quire/core.h"

namespace quire {

// Initial capacity of the request table for waiting requests. More are accepted as they come.
inline constexpr std::uint32_t kExpectedWaiting = 4096;

// Returns the options of the KV cache for a valid configuration.
KvCacheOptions kv_cache_options(const CoreConfig& config, const DecisionRules& rules);

// Returns the request's max_tokens, capped at what max_model_len leaves unless admit_oversized.
std::uint32_t max_tokens(const NewRequest& request, const CoreConfig& config);

// Returns an error that names the field if the request can never finish under this configuration. With admit_oversized, checks only what
// the core itself requires.
Result<void> check_request(const NewRequest& request, const CoreConfig& config, const CoreSeams& seams);

}  // namespace quire
