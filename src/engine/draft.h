#pragma once
// The draft model of speculative decoding. It is opened and checked before any weights are read, and is loaded after the target model.
#include <memory>
#include <optional>

#include "quire/base/error.h"
#include "quire/base/kv_layout.h"
#include "quire/base/model_info.h"
#include "quire/base/options.h"
#include "runtime/model/weights/model_file.h"
#include "runtime/worker/draft_model.h"

namespace quire {

struct DraftFile {
  ModelFile file;
  ModelInfo info;
};

// Checks that `draft` can predict tokens of `target`: it must be a text decoder that caches only keys and values, with the same token ids.
// The vocabulary sizes may differ by padding. Errors contain the paths and name the option "speculative_model".
Result<void> check_draft(const ModelInfo& draft, const std::string& draft_path, const ModelInfo& target, const std::string& target_path);

// Opens and checks options.draft_model; nullopt: no draft model is configured. Errors: the errors of check_draft() and of opening the file.
Result<std::optional<DraftFile>> open_draft(const EngineOptions& options, const ModelInfo& target);
// Loads the draft model and creates its KV cache. `options` must be resolved; `layout` describes the target's KV cache.
Result<std::unique_ptr<DraftModel>> load_draft(const DraftFile& draft, const EngineOptions& options, const ModelInfo& target,
                                               const KvLayout& layout, ThreadPool& pool);

}  // namespace quire
