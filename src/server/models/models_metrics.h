#pragma once
// The metrics of a server with several models. The metrics of one model are at /upstream/NAME/metrics.
#include <string>

#include "server/models/model_pool.h"

namespace quire {

// Returns the text of /metrics, in Prometheus's format.
[[nodiscard]] std::string models_metrics_text(const ModelPool& pool);

}  // namespace quire
