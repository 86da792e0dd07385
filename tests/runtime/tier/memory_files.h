#pragma once
// A tier's folder in memory that loses, tears, reorders and refuses writes. The disk outlives the tier, so a test can open it again after a
// power loss. Each direction has its thread, and a mutex serialises their accesses.
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "runtime/tier/tier_files.h"

namespace quire::test {

enum class Fault : std::uint8_t {
  none,
  fails,  // nothing is written
  torn,   // a part is written, and a failure is reported
  lost,   // nothing is written, and success is reported
  dead    // the process has ended
};

struct MemoryDisk {
  using Bytes = std::vector<std::byte>;
  struct Write {
    TierFile file;
    std::uint64_t offset;
    Bytes bytes;
  };

  Bytes blocks, table;            // as a process sees them
  Bytes safe_blocks, safe_table;  // content at the last synchronisation
  std::vector<Write> unsafe;      // writes since then, in order
  std::uint64_t num_writes = 0;
  std::vector<std::uint64_t> block_reads;           // offsets of the reads of blocks, in order
  std::function<Fault(std::uint64_t write)> fault;  // chooses the fault of each write
  bool refuses_reads = false;
  bool is_full = false;  // no file can grow
  std::uint64_t seed = 1;
  std::shared_ptr<std::mutex> mutex = std::make_shared<std::mutex>();  // protects write() and read()

  Bytes& of(TierFile file) { return file == TierFile::blocks ? blocks : table; }

  bool write(TierFile file, std::uint64_t offset, std::span<const std::byte> bytes) {
    const std::lock_guard lock(*mutex);
    const Fault what = fault ? fault(num_writes) : Fault::none;
    ++num_writes;
    if (what == Fault::fails || what == Fault::dead) return false;
    if (what == Fault::lost) return true;
    if (what == Fault::torn) bytes = bytes.first(bytes.size() > 512 ? bytes.size() / 1024 * 512 : bytes.size() / 2);
    QUIRE_CHECK(offset + bytes.size() <= of(file).size(), "a tier writes within its files");
    std::ranges::copy(bytes, of(file).begin() + static_cast<std::ptrdiff_t>(offset));
    unsafe.push_back({file, offset, {bytes.begin(), bytes.end()}});
    return what == Fault::none;
  }
  bool read(TierFile file, std::uint64_t offset, std::span<std::byte> bytes) {
    const std::lock_guard lock(*mutex);
    if (file == TierFile::blocks) block_reads.push_back(offset);
    if (refuses_reads || offset + bytes.size() > of(file).size()) return false;
    std::copy_n(of(file).begin() + static_cast<std::ptrdiff_t>(offset), bytes.size(), bytes.begin());
    return true;
  }

  void synchronise() {
    safe_blocks = blocks;
    safe_table = table;
    unsafe.clear();
  }
  // Returns the disk after a power loss: each unsynchronised write keeps all, some or none of its sectors.
  [[nodiscard]] MemoryDisk after_power_loss(Random& random) const {
    MemoryDisk left;
    left.blocks = safe_blocks;
    left.table = safe_table;
    for (const Write& one : unsafe) {
      const std::uint64_t kind = random.below(3);
      for (std::uint64_t at = 0; at < one.bytes.size(); at += 512)
        if (kind == 0 || (kind == 1 && random.chance(0.5)))
          std::copy_n(one.bytes.begin() + static_cast<std::ptrdiff_t>(at), std::min<std::uint64_t>(512, one.bytes.size() - at),
                      left.of(one.file).begin() + static_cast<std::ptrdiff_t>(one.offset + at));
    }
    left.synchronise();
    return left;
  }
};

// Copies some of the blocks in random order when they are collected.
class MemoryQueue final : public BlockQueue {
 public:
  explicit MemoryQueue(std::shared_ptr<MemoryDisk> disk) : disk_(std::move(disk)), random_(disk_->seed) {}

  void submit(const BlockIo& io) override { under_way_.push_back(io); }
  void collect(bool wait, std::vector<BlockIoCompletion>& over) override {
    std::unique_lock lock(mutex_);
    if (wait && under_way_.empty()) rung_.wait(lock, [this] { return is_rung_; });
    is_rung_ = false;
    lock.unlock();
    if (under_way_.empty()) return;
    for (std::uint64_t count = random_.between(1, under_way_.size()); count > 0; --count) {
      std::swap(under_way_[random_.below(under_way_.size())], under_way_.back());
      const BlockIo io = under_way_.back();
      under_way_.pop_back();
      over.push_back(
          {io.tag, io.is_write ? disk_->write(TierFile::blocks, io.offset, io.bytes) : disk_->read(TierFile::blocks, io.offset, io.bytes)});
    }
  }
  void wake() override {
    const std::lock_guard lock(mutex_);
    is_rung_ = true;
    rung_.notify_one();
  }

 private:
  std::shared_ptr<MemoryDisk> disk_;
  Random random_;
  std::vector<BlockIo> under_way_;
  std::mutex mutex_;
  std::condition_variable rung_;
  bool is_rung_ = false;
};

class MemoryFiles final : public TierFiles {
 public:
  explicit MemoryFiles(std::shared_ptr<MemoryDisk> disk) : disk_(std::move(disk)) {}

  Result<std::uint64_t> disk_bytes() override { return disk_->blocks.size() + disk_->table.size(); }
  Result<std::uint64_t> table_bytes() override { return disk_->table.size(); }
  Result<void> resize(TierFile file, std::uint64_t bytes) override {
    if (disk_->is_full && bytes > disk_->of(file).size()) return fail(ErrorCode::io, "kv_disk_budget", "the disk is full");
    disk_->of(file).resize(bytes);
    (file == TierFile::blocks ? disk_->safe_blocks : disk_->safe_table).resize(bytes);
    return {};
  }
  Result<void> read_table(std::uint64_t offset, std::span<std::byte> bytes) override {
    return told(disk_->read(TierFile::table, offset, bytes));
  }
  Result<void> write_table(std::uint64_t offset, std::span<const std::byte> bytes) override {
    return told(disk_->write(TierFile::table, offset, bytes));
  }
  Result<void> sync_table() override {
    disk_->safe_table = disk_->table;
    std::erase_if(disk_->unsafe, [](const MemoryDisk::Write& one) { return one.file == TierFile::table; });
    return {};
  }
  std::unique_ptr<BlockQueue> open_queue(std::uint32_t /*depth*/) override { return std::make_unique<MemoryQueue>(disk_); }

 private:
  static Result<void> told(bool is_done) {
    if (is_done) return {};
    return fail(ErrorCode::io, "kv_disk", "the disk failed");
  }
  std::shared_ptr<MemoryDisk> disk_;
};

}  // namespace quire::test
