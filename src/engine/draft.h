#pragma once
// A draft model beside the one that is served: opened and checked before weights are read, loaded after those of the other.
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

// Whether `draft` can guess what `target` says: a text decoder that keeps keys and values alone, and whose tokens have the same numbers.
// Vocabularies may end elsewhere by as much as padding does. Paths are for errors, which name the option "speculative_model".
Result<void> check_draft(const ModelInfo& draft, const std::string& draft_path, const ModelInfo& target, const std::string& target_path);

// That of options.draft_model, checked; nothing: there is none. Errors as above, and those of the file.
Result<std::optional<DraftFile>> open_draft(const EngineOptions& options, const ModelInfo& target);
// `options` are resolved, `layout` is of the target's KV cache.
Result<std::unique_ptr<DraftModel>> load_draft(const DraftFile& draft, const EngineOptions& options, const ModelInfo& target,
                                               const KvLayout& layout, ThreadPool& pool);

}  // namespace quire
