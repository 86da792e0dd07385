#pragma once
// A disk tier's folder (`quire serve --kv-disk`) while nothing serves from it: what it holds, and whether that is still what was stored.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "quire/base/api.h"
#include "quire/base/error.h"
#include "quire/offload.h"

namespace quire {

// Read when the folder was opened. Sizes in bytes; a place is a fixed share of a file, which one block fills or less.
struct CacheFolderInfo {
  std::string fingerprint;                // of the model, its KV layout and its arithmetic, in hexadecimal digits
  std::uint64_t num_openings = 0;         // how often a process has opened it to serve
  std::uint64_t place_bytes = 0;          // of a place, which holds one block
  std::uint64_t num_places = 0;           // that the table has entries for
  std::uint64_t num_blocks = 0;           // that the table names
  std::uint64_t block_bytes = 0;          // of these, without what fills their last pages
  std::uint64_t disk_bytes = 0;           // of the folder, as `du` counts it
  std::uint64_t num_damaged_entries = 0;  // of the table, which name nothing
};

// One entry of the table. `bytes` are the block's own, without padding.
struct CachedBlock {
  OffloadKey name;
  std::uint32_t place = 0;
  std::uint32_t bytes = 0;
  std::uint64_t sequence = 0;  // greater: stored later

  friend bool operator==(const CachedBlock&, const CachedBlock&) = default;
};

// One thread at a time. For tools (`quire cache`): the engine opens its folder itself.
class CacheFolder {
 public:
  // Locks the folder while the object lives, and changes nothing in it. Errors (`folder`): it is not there or holds no disk tier, a process
  // serves from it, it is of another version, its header is broken, or it cannot be read.
  static QUIRE_API Result<std::unique_ptr<CacheFolder>> open(const std::string& folder);
  virtual ~CacheFolder() = default;

  [[nodiscard]] virtual const CacheFolderInfo& info() const = 0;
  // Of all that the table names, by the order in which they were stored.
  [[nodiscard]] virtual const std::vector<CachedBlock>& blocks() const = 0;
  // Reads each block and appends those that do not verify, or cannot be read, to `bad`. `progress`, which may be empty, hears 0 to 1.
  virtual Result<void> verify(const std::function<void(double)>& progress, std::vector<CachedBlock>& bad) = 0;
  // Removes the tier's files; the object knows of no block any more.
  virtual Result<void> drop() = 0;
};

}  // namespace quire
