#pragma once
// Inspects the folder of a disk tier (`quire serve --kv-disk`) while no server uses the folder: lists, verifies and removes its blocks.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "quire/base/api.h"
#include "quire/base/error.h"
#include "quire/offload.h"

namespace quire {

// Properties of the folder, read when it was opened. Sizes are in bytes. A slot is a fixed range of the block file that holds at most one
// block.
struct CacheFolderInfo {
  std::string fingerprint;                // hex digits that identify the model, its KV layout and its arithmetic
  std::uint64_t num_openings = 0;         // number of times that a process has opened the folder to serve from it
  std::uint64_t place_bytes = 0;          // size of one slot
  std::uint64_t num_places = 0;           // number of slots, for each of which the table has an entry
  std::uint64_t num_blocks = 0;           // valid entries of the table
  std::uint64_t block_bytes = 0;          // sum of the blocks' sizes, without padding to full pages
  std::uint64_t disk_bytes = 0;           // size of the folder, as `du` counts it
  std::uint64_t num_damaged_entries = 0;  // damaged entries of the table, whose blocks are unknown
};

// One valid entry of the table: block `name` (block hash and cache group) is in slot `place`. `bytes` is the block's size without padding.
struct CachedBlock {
  OffloadKey name;
  std::uint32_t place = 0;
  std::uint32_t bytes = 0;
  std::uint64_t sequence = 0;  // a block with a greater number was stored later

  friend bool operator==(const CachedBlock&, const CachedBlock&) = default;
};

// An open folder of a disk tier, for tools (`quire cache`). An engine does not use this class for its own folder. Used by one thread at a
// time.
class CacheFolder {
 public:
  // Opens the folder and locks it while the object lives. Changes nothing in the folder. Errors name the field `folder`: the folder does
  // not exist or holds no disk tier, a process serves from it, its version differs, its header is damaged, or it cannot be read.
  static QUIRE_API Result<std::unique_ptr<CacheFolder>> open(const std::string& folder);
  virtual ~CacheFolder() = default;

  [[nodiscard]] virtual const CacheFolderInfo& info() const = 0;
  // Returns all valid entries of the table in the order in which their blocks were stored.
  [[nodiscard]] virtual const std::vector<CachedBlock>& blocks() const = 0;
  // Reads all blocks and appends the blocks that fail their checksum or cannot be read to `bad`, ordered by slot. `progress` is called with
  // values from 0 to 1, and may be empty. Error: there is no memory for the reads.
  virtual Result<void> verify(const std::function<void(double)>& progress, std::vector<CachedBlock>& bad) = 0;
  // Removes the tier's files. Afterwards blocks() is empty. Error: a file cannot be removed.
  virtual Result<void> drop() = 0;
};

}  // namespace quire
