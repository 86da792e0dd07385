#pragma once
// Interface between a disk tier and the files in its folder: the blocks and the table. A tier uses its files only through this interface,
// so that tests can lose, tear, reorder and refuse writes.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "quire/base/error.h"

namespace quire {

// A read or write of one block in the blocks' file. Offset, size and address are multiples of 4 KiB.
struct BlockIo {
  std::uint32_t tag = 0;  // below the queue's depth; unique among the blocks in flight
  bool is_write = false;
  std::uint64_t offset = 0;
  std::span<std::byte> bytes;  // must stay valid until the read or write has ended
};

struct BlockIoCompletion {
  std::uint32_t tag = 0;
  bool is_done = false;  // all bytes were moved
};

// Reads and writes several blocks at a time, which may end in any order. Used by one thread, except for wake().
class BlockQueue {
 public:
  virtual ~BlockQueue() = default;  // no block may be in flight
  // Begins a read or write. At most the queue's depth may be in flight.
  virtual void submit(const BlockIo& io) = 0;
  // Appends the reads and writes that have ended. With `wait`, waits until one of them has ended or wake() is called. A wake() since the
  // last collect() also ends the wait.
  virtual void collect(bool wait, std::vector<BlockIoCompletion>& over) = 0;
  virtual void wake() = 0;
};

enum class TierFile : std::uint8_t { blocks, table };

// Accepts one call at a time. The queues may be used at the same time.
class TierFiles {
 public:
  virtual ~TierFiles() = default;
  // Returns the disk space that the folder uses, as `du` counts it.
  virtual Result<std::uint64_t> disk_bytes() = 0;
  virtual Result<std::uint64_t> table_bytes() = 0;
  // Extends the file with zeros, or truncates it. The file system reserves the space if it can.
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

// Identifies the file of a folder that contains the blocks. identity_of() returns nullopt if there is no such file.
struct FileIdentity {
  std::uint64_t device = 0, number = 0;

  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};
std::optional<FileIdentity> identity_of(const std::string& folder);

// Returns the bytes that this user may still use in the folder's file system. Errors name `kv_disk`.
Result<std::uint64_t> free_bytes(const std::string& folder);

// Creates the folder and its files (quire-lock, quire-blocks, quire-table) if they are missing, and locks the folder until the object is
// destroyed. Errors: another process, or another tier of this process, has locked the folder; this user cannot write to it. If `io` is
// io_uring and not available, open_queue() returns null.
Result<std::unique_ptr<TierFiles>> open_tier_folder(const std::string& folder, TierIo io);

}  // namespace quire
