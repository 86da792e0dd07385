#pragma once
// The folder of packed weights (`--weights-cache`): one file per model, within a budget.
#include <cstdint>
#include <memory>
#include <string>

#include "base/digest.h"
#include "quire/base/error.h"
#include "quire/base/options.h"
#include "runtime/model/packed/packed_file.h"

namespace quire {

// Opens the file of `key` and marks it as used now. Errors: as PackedFile::open; a damaged file is removed.
Result<PackedFile> find_packed(const WeightsOptions& options, const Sha256Digest& key);

// Creates the folder if needed, and frees space in it: removes unfinished files of processes that have ended, then the least recently used
// files that no process has open. Errors on `weights_cache` or `weights_cache_budget`: `io` if the folder cannot be created or the file
// system is full; `too_large` if the budget is too small.
Result<std::unique_ptr<PackedFileWriter>> begin_packed(const WeightsOptions& options, const Sha256Digest& key, std::uint32_t num_matrices,
                                                       std::uint64_t estimated_bytes);

// Removes a damaged file, so that the next start packs the model again. Processes that have the file open can still use it.
void remove_packed(const WeightsOptions& options, const Sha256Digest& key);

}  // namespace quire
