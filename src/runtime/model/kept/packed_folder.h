#pragma once
// The folder of packed weights (`--weights-cache`): a file for each model, within a budget.
#include <cstdint>
#include <memory>
#include <string>

#include "base/digest.h"
#include "quire/base/error.h"
#include "quire/base/options.h"
#include "runtime/model/kept/packed_file.h"

namespace quire {

// Marks the file as used now. Errors: as PackedFile::open; a damaged file is removed.
Result<PackedFile> find_packed(const WeightsOptions& options, const Sha256Digest& key);

// Makes the folder if need be, and room in it: files of processes that have ended without finishing them go, then those that were not used
// for longest and that nobody has open. Errors, naming `weights_cache`: `io` where the folder cannot be made or the file system lacks the
// room; `too_large` where the budget does.
Result<std::unique_ptr<PackedFileWriter>> begin_packed(const WeightsOptions& options, const Sha256Digest& key, std::uint32_t num_matrices,
                                                       std::uint64_t estimated_bytes);

// What was found damaged is packed again at the next start. Whoever has it open goes on.
void remove_packed(const WeightsOptions& options, const Sha256Digest& key);

}  // namespace quire
