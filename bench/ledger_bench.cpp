// Measures the time of a lower tier's ledger per block, with a million resident blocks: prompts are looked up, loaded and stored, and evict
// other blocks.
//   ledger_bench [BLOCKS [POLICY]]    default: 1048576, lru
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/random.h"
#include "core/offload/offload_ledger.h"

namespace {

using quire::OffloadKey;
using SteadyClock = std::chrono::steady_clock;

// Returns the block hashes of a prompt: pseudo-random, determined by prompt and position.
std::vector<OffloadKey> keys_of(std::uint64_t prompt, std::uint32_t count) {
  std::vector<OffloadKey> keys(count);
  quire::Random random(prompt);
  for (OffloadKey& key : keys)
    for (std::size_t at = 0; at < key.hash.size(); at += 8) {
      const std::uint64_t word = random.next();
      std::memcpy(&key.hash[at], &word, sizeof word);
    }
  return keys;
}

// Returns the nanoseconds per block: the median over prompts, each timed separately.
template <class Body>
double per_block(std::uint32_t prompts, std::uint32_t blocks, Body&& body) {
  std::vector<double> taken;
  for (std::uint32_t i = 0; i < prompts; ++i) {
    const auto keys = body.prepare(i);
    const auto begin = SteadyClock::now();
    body.run(keys);
    taken.push_back(std::chrono::duration<double, std::nano>(SteadyClock::now() - begin).count() / blocks);
  }
  std::ranges::nth_element(taken, taken.begin() + static_cast<std::ptrdiff_t>(taken.size() / 2));
  return taken[taken.size() / 2];
}

struct HitAndLoad {
  quire::OffloadLedger& ledger;
  std::uint64_t next_prompt, num_resident;
  std::uint32_t blocks;
  quire::Random random{7};
  [[nodiscard]] std::vector<OffloadKey> prepare(std::uint32_t /*i*/) {
    return keys_of(next_prompt - 1 - random.below(num_resident), blocks);
  }
  void run(const std::vector<OffloadKey>& keys) const {
    ledger.touch(keys);
    if (ledger.lookup(keys) != keys.size() || !ledger.prepare_load(keys) || !ledger.complete_load(keys)) std::abort();
  }
};

struct MissAndStore {
  quire::OffloadLedger& ledger;
  std::uint64_t next_prompt;
  std::uint32_t blocks;
  [[nodiscard]] std::vector<OffloadKey> prepare(std::uint32_t i) const { return keys_of(next_prompt + i, blocks); }
  void run(const std::vector<OffloadKey>& keys) const {
    ledger.touch(keys);
    if (ledger.lookup(keys) != 0 || !ledger.prepare_store(keys)) std::abort();
    ledger.complete_store(keys);
  }
};

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t resident = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1 << 20U;
  const auto policy = quire::parse_offload_policy(argc > 2 ? argv[2] : "lru");
  if (!policy) return fmt::print("{}\n", policy.error().to_string()), 1;
  auto made = quire::OffloadLedger::create({.num_slots = static_cast<std::int64_t>(resident), .policy = *policy});
  if (!made) return fmt::print("{}\n", made.error().to_string()), 1;
  quire::OffloadLedger& ledger = **made;
  fmt::print("{} blocks resident; ns per block, median of prompts\n{:>16} {:>24} {:>32}\n", resident, "blocks a prompt",
             "touch, look up, load", "touch, look up, store, evict");
  std::uint64_t next_prompt = 0;
  for (const std::uint32_t blocks : {32U, 128U, 512U}) {
    const std::uint64_t first = next_prompt;
    for (; (next_prompt - first) * blocks < resident + blocks; ++next_prompt) {
      const auto keys = keys_of(next_prompt, blocks);
      if (!ledger.prepare_store(keys)) std::abort();
      ledger.complete_store(keys);
    }
    const double load = per_block(2000, blocks, HitAndLoad{ledger, next_prompt, resident / blocks, blocks, quire::Random(7)});
    const double store = per_block(2000, blocks, MissAndStore{ledger, next_prompt, blocks});
    next_prompt += 2000;
    fmt::print("{:>16} {:>24.0f} {:>32.0f}\n", blocks, load, store);
  }
}
