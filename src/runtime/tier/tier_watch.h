#pragma once
// Watches over a disk tier: one that fails, hangs or is gone is left out, for loads, for stores, or for both, and is tried again now and
// then. Blocks that it holds are read for the trial, so no request waits for that; a trial of stores are the next ones that come.
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "quire/offload.h"
#include "runtime/tier/disk_store.h"
#include "runtime/tier/store_transport.h"
#include "runtime/tier/tier_files.h"
#include "runtime/tier/tier_health.h"

namespace quire {

class TierWatch {
 public:
  // `transport` outlives it.
  TierWatch(std::shared_ptr<DiskStore> store, const StoreTransport& transport, std::string folder);

  // By one thread, some times per second. Whether service() is another one since.
  bool look(double now_s);

  // Any thread.
  [[nodiscard]] TierService service() const;
  [[nodiscard]] std::uint64_t num_times_left_out() const;
  [[nodiscard]] bool is_gone() const;
  // Some blocks are to be read, to learn how fast that is.
  void read_some() { wants_reads_ = true; }

 private:
  // Outlives the watch as long as one of its reads is under way.
  struct Reads {
    std::atomic<std::uint32_t> num_left = 0;
  };
  [[nodiscard]] bool is_reading() const { return reads_->num_left > 0; }
  bool begin_reads(double now_s);

  const std::shared_ptr<DiskStore> store_;
  const StoreTransport& transport_;
  const std::string folder_;
  // Of the folder, when the tier was opened.
  const std::optional<FileIdentity> identity_;
  const std::shared_ptr<Reads> reads_ = std::make_shared<Reads>();
  // The looking thread's: where the next reads begin, so that all blocks have their turn.
  std::uint32_t next_place_ = 0;
  double next_reads_s_ = 0.0, next_identity_s_ = 0.0;
  std::atomic<bool> wants_reads_ = false;

  mutable std::mutex mutex_;
  // Guarded by mutex_, as all that follows.
  TierHealth loads_, stores_;
  bool gone_ = false;
  TierService service_;
};

}  // namespace quire
