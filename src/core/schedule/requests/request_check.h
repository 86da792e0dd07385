#pragma once
// The border of the core: configurations and requests that can work.
#include <cstdint>

#include "core/kv/kv_cache_manager.h"
#include "quire/base/error.h"
#include "quire/core.h"

namespace quire {

// What the table of requests is made for at once; more are taken in as they come.
inline constexpr std::uint32_t kExpectedWaiting = 4096;

// What the KV cache takes from a valid configuration.
KvCacheOptions kv_cache_options(const CoreConfig& config);

// The request's max_tokens, cut to what max_model_len leaves unless admit_oversized.
std::uint32_t max_tokens(const NewRequest& request, const CoreConfig& config);

// Whether the request can ever finish under this configuration; if not, which field is to blame. With admit_oversized, only what the core
// itself cannot do without.
Result<void> check_request(const NewRequest& request, const CoreConfig& config, const CoreSeams& seams);

}  // namespace quire
