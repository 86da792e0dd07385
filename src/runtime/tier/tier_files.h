#pragma once
// The seam between a disk tier and its folder: a file of blocks and a table. A tier reads and writes only through it, so that tests can
// lose, tear, reorder and refuse data.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "quire/base/error.h"

namespace quire {

// A block to move between memory and the blocks' file. Offset, size and address are multiples of 4 KiB.
struct BlockIo {
  std::uint32_t tag = 0;  // below the queue's depth; unique among the blocks in flight
  bool is_write = false;
  std::uint64_t offset = 0;
  std::span<std::byte> bytes;  // must stay valid until the move is over
};

struct BlockIoCompletion {
  std::uint32_t tag = 0;
  bool is_done = false;  // all bytes were moved
};

// Moves several blocks at a time, which may end in any order. One thread calls it, except for wake().
class BlockQueue {
 public:
  virtual ~BlockQueue() = default;  // no block may be in flight
  // Begins a move. At most the queue's depth may be in flight.
  virtual void submit(const BlockIo& io) = 0;
  // Appends the moves that have ended. `wait`: returns when one has ended, or after a wake() that no collect() has seen.
  virtual void collect(bool wait, std::vector<BlockIoCompletion>& over) = 0;
  virtual void wake() = 0;
};

enum class TierFile : std::uint8_t { blocks, table };

// Accepts one call at a time, except for the queues.
class TierFiles {
 public:
  virtual ~TierFiles() = default;
  // Returns the disk space that the folder uses, as `du` counts it.
  virtual Result<std::uint64_t> disk_bytes() = 0;
  virtual Result<std::uint64_t> table_bytes() = 0;
  // Grows the file by zeros, or cuts its end. The file system reserves the space if it can.
  virtual Result<void> resize(TierFile file, std::uint64_t bytes) = 0;
  virtual Result<void> read_table(std::uint64_t offset, std::span<std::byte> bytes) = 0;
  virtual Result<void> write_table(std::uint64_t offset, std::span<const std::byte> bytes) = 0;
  // Ensures that writes to the table survive a loss of power.
  virtual Result<void> sync_table() = 0;
  virtual std::unique_ptr<BlockQueue> open_queue(std::uint32_t depth) = 0;
};

enum class TierIo : std::uint8_t {
  automatic,  // io_uring if the build and the kernel have it, otherwise threads
  io_uring,
  threads
};

// Identifies a folder's file of blocks; identity_of() returns nullopt if there is no such file.
struct FileIdentity {
  std::uint64_t device = 0, number = 0;

  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};
std::optional<FileIdentity> identity_of(const std::string& folder);

// Returns the bytes that this user may still use in the folder's file system. Errors name `kv_disk`.
Result<std::uint64_t> free_bytes(const std::string& folder);

// Creates the folder and its files (quire-lock, quire-blocks, quire-table) if they are missing, and locks the folder until the object is
// destroyed. Errors: another process, or another tier of this process, has the lock; no right to write there. If io_uring was requested and
// is not available, open_queue() returns null.
Result<std::unique_ptr<TierFiles>> open_tier_folder(const std::string& folder, TierIo io);

}  // namespace quire
