#pragma once
// The border of the scheduler: configurations and requests that can work.
#include <cstdint>

#include "core/schedule/scheduler.h"
#include "quire/error.h"

namespace quire {

// Prompt and output of a valid request, at most.
std::uint32_t max_total_tokens(const NewRequest& request, const SchedulerConfig& config);

// Whether the request can ever finish under this configuration; if not, which field is to blame.
Result<void> check_request(const NewRequest& request, const SchedulerConfig& config);

}  // namespace quire
