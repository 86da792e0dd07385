#pragma once
#include <chrono>
#include <cstdint>

#include "quire/server_options.h"
#include "server/http/job_pool.h"

namespace quire {

// Number of threads that fetch remote images. Each fetches one image at a time. One client uses at most half of the threads.
inline constexpr std::uint32_t kFetchingThreads = 8;

// Returns the options of the job pool that reads and prepares requests.
inline JobPool::Options pool_options(const ServerOptions& options) {
  return {.max_jobs = options.max_parse_queue,
          .num_fetching = options.allowed_media_domains.empty() ? 0 : kFetchingThreads,
          .low_priority = options.low_parse_priority,
          .max_time = std::chrono::milliseconds(options.max_parse_ms),
          .max_started_bytes = 2 * options.max_body_bytes};
}

}  // namespace quire
