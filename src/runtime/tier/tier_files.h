#pragma once
// The seam between a disk tier and its folder: a file of blocks and a table. Everything that a tier reads or writes goes through it, so
// that tests can lose, tear, reorder and refuse it.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "quire/base/error.h"

namespace quire {

// A block to move between memory and the blocks' file; offset, size and address are multiples of 4 KiB.
struct BlockIo {
  std::uint32_t tag = 0;  // below the queue's depth; of one that is under way, nobody else's
  bool is_write = false;
  std::uint64_t offset = 0;
  std::span<std::byte> bytes;  // stay until it is over
};

struct BlockIoOver {
  std::uint32_t tag = 0;
  bool is_done = false;  // all of it was moved
};

// Moves blocks, several at a time, and ends them in any order. One thread calls it, but for wake().
class BlockQueue {
 public:
  virtual ~BlockQueue() = default;  // nothing may be under way
  // At most as many at a time as the queue was opened for.
  virtual void submit(const BlockIo& io) = 0;
  // Appends what is over. `wait`: returns when there is something, or after a wake() that no collect() has seen.
  virtual void collect(bool wait, std::vector<BlockIoOver>& over) = 0;
  virtual void wake() = 0;
};

enum class TierFile : std::uint8_t { blocks, table };

// One call at a time, but for the queues.
class TierFiles {
 public:
  virtual ~TierFiles() = default;
  // What the folder takes of the file system, as `du` counts it.
  virtual Result<std::uint64_t> disk_bytes() = 0;
  virtual Result<std::uint64_t> table_bytes() = 0;
  // Grown by zeros, which have their place in the file system where it can promise that; cut at the end.
  virtual Result<void> resize(TierFile file, std::uint64_t bytes) = 0;
  virtual Result<void> read_table(std::uint64_t offset, std::span<std::byte> bytes) = 0;
  virtual Result<void> write_table(std::uint64_t offset, std::span<const std::byte> bytes) = 0;
  // What was written to the table outlives a loss of power.
  virtual Result<void> sync_table() = 0;
  virtual std::unique_ptr<BlockQueue> open_queue(std::uint32_t depth) = 0;
};

enum class TierIo : std::uint8_t {
  automatic,  // io_uring where build and kernel have it, else threads
  io_uring,
  threads
};

// Which file of blocks a folder has; nullopt: none.
struct FileIdentity {
  std::uint64_t device = 0, number = 0;

  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};
std::optional<FileIdentity> identity_of(const std::string& folder);

// What this user may still take of the file system that the folder lies in. Errors: `kv_disk`.
Result<std::uint64_t> free_bytes(const std::string& folder);

// Makes the folder and its files (quire-lock, quire-blocks, quire-table) where they are missing, and locks it until the object dies.
// Errors: another process (or another tier of this one) has it; no right to write there; the build or the kernel has no io_uring and it was
// asked for.
Result<std::unique_ptr<TierFiles>> open_tier_folder(const std::string& folder, TierIo io);

}  // namespace quire
