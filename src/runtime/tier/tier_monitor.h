#pragma once
// Watches over a disk tier. A tier that fails, hangs or is gone is disabled, for loads, for stores, or for both, and is tried again later.
// A trial of loads reads some of its blocks, so no request waits for it. A trial of stores uses the next stores.
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

class TierMonitor {
 public:
  // `transport` outlives this object.
  TierMonitor(std::shared_ptr<DiskStore> store, const StoreTransport& transport, std::string folder);

  // Called by one thread, some times per second. Returns whether service() has changed.
  bool look(double now_s);

  // May be called on any thread.
  [[nodiscard]] TierService service() const;
  [[nodiscard]] std::uint64_t num_times_disabled() const;
  [[nodiscard]] bool is_gone() const;
  // Requests that some blocks are read, to measure the speed.
  void request_probe() { is_probe_requested_ = true; }

 private:
  // Outlives the watch while one of its reads is in flight.
  struct Reads {
    std::atomic<std::uint32_t> num_left = 0;
  };
  [[nodiscard]] bool is_reading() const { return reads_->num_left > 0; }
  bool start_probe_reads(double now_s);

  const std::shared_ptr<DiskStore> store_;
  const StoreTransport& transport_;
  const std::string folder_;
  // The folder's identity when the tier was opened.
  const std::optional<FileIdentity> identity_;
  const std::shared_ptr<Reads> reads_ = std::make_shared<Reads>();
  // Used by the looking thread only: where the next reads begin, so that every block gets its turn.
  std::uint32_t next_slot_ = 0;
  double next_reads_s_ = 0.0, next_identity_s_ = 0.0;
  std::atomic<bool> is_probe_requested_ = false;

  mutable std::mutex mutex_;
  // Guarded by mutex_, like all members below.
  TierHealth loads_, stores_;
  bool gone_ = false;
  TierService service_;
};

}  // namespace quire
