#pragma once
// Disables a disk tier that fails, hangs or is gone, for loads, for stores, or for both, and tries it again later. To try loads, the
// monitor itself reads some blocks, so that no request waits for the trial. To try stores, the monitor enables them for the next stores.
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

  // Updates service() from the store's counters and the identity of the folder. Returns whether service() has changed. Called by one thread
  // several times per second.
  bool look(double now_s);

  // May be called on any thread.
  [[nodiscard]] TierService service() const;
  [[nodiscard]] std::uint64_t num_times_disabled() const;
  [[nodiscard]] bool is_gone() const;
  // Requests that look() reads some blocks, to measure the load speed.
  void request_probe() { is_probe_requested_ = true; }

 private:
  // Outlives the monitor while one of the reads is in flight.
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
  // Used only by the thread that calls look(). next_slot_: the slot at which the next reads begin, so that all blocks are read in turn.
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
