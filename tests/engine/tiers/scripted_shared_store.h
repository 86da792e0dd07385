#pragma once
// A store of several servers whose answers and counters a test sets.
#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "runtime/remote/shared_store.h"

namespace quire::test {

class ScriptedSharedStore final : public SharedStore {
 public:
  explicit ScriptedSharedStore(std::uint32_t num_places = 8, std::uint64_t block_bytes = 32)
      : num_places_(num_places), block_bytes_(block_bytes) {}

  struct Question {
    std::vector<OffloadKey> names;
    std::function<bool()> is_wanted;
    std::function<void(const Answer&)> over;
  };

  [[nodiscard]] std::uint32_t num_places() const override { return num_places_; }
  [[nodiscard]] std::uint64_t block_bytes() const override { return block_bytes_; }
  void submit(TierJob job) override { job.over(TierOutcome::done); }
  void ask(std::vector<OffloadKey> names, std::function<bool()> is_wanted, std::function<void(const Answer&)> over) override {
    questions.push_back({std::move(names), std::move(is_wanted), std::move(over)});
  }
  void forget(const OffloadKey& name) override { forgotten.push_back(name); }
  void mark_untrusted(const OffloadKey& name) override { untrusted.push_back(name); }
  void probe_loads() override { ++num_probes; }
  [[nodiscard]] bool is_probing() const override { return probes; }
  [[nodiscard]] TierService service() const override { return can; }
  [[nodiscard]] SharedStoreStats stats() const override {
    const std::lock_guard lock(mutex_);
    return stats_;
  }
  [[nodiscard]] std::string last_problem() const override { return problem; }

  // Changes the counters, which other threads read.
  void count(const std::function<void(SharedStoreStats&)>& change) {
    const std::lock_guard lock(mutex_);
    change(stats_);
  }

  // Calls on the engine thread.
  std::vector<Question> questions;
  std::vector<OffloadKey> forgotten, untrusted;
  // Set before a tier uses the store.
  TierService can;
  std::string problem;
  // Any thread.
  std::atomic<std::uint32_t> num_probes = 0;
  std::atomic<bool> probes = false;

 private:
  const std::uint32_t num_places_;
  const std::uint64_t block_bytes_;
  mutable std::mutex mutex_;
  SharedStoreStats stats_;
};

}  // namespace quire::test
