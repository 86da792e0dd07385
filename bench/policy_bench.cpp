// Measures hit ratios of a lower tier's eviction policies by the size of the tier. Prompts are lists of block hashes, which
// bench/policies.py makes from recorded traces.
//   policy_bench STORED_AT_ONCE SLOTS... < PROMPTS    32-bit little-endian numbers: number of blocks, their hashes, and so on
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "core/offload/offload_ledger.h"

namespace {

using Prompts = std::vector<std::vector<quire::OffloadKey>>;

quire::OffloadKey key_of(std::uint32_t name) {
  quire::OffloadKey key;
  // Mixes the bits, so that the key looks like a digest.
  const std::uint64_t bits = (name + 1ULL) * 0x9E3779B97F4A7C15ULL;
  std::memcpy(key.hash.data(), &bits, sizeof bits);
  return key;
}

Prompts read_prompts() {
  Prompts prompts;
  std::uint32_t count = 0;
  std::vector<std::uint32_t> names;
  while (std::fread(&count, sizeof count, 1, stdin) == 1) {
    names.resize(count);
    if (std::fread(names.data(), sizeof(std::uint32_t), count, stdin) != count) break;
    auto& keys = prompts.emplace_back();
    for (const std::uint32_t name : names) keys.push_back(key_of(name));
  }
  return prompts;
}

// Plays the prompts with calls in the connector's order: a lookup and a load on admission, then stores in portions. Returns the share of
// found blocks.
double hit_ratio(const Prompts& prompts, quire::OffloadPolicy policy, std::int64_t num_slots, std::size_t stored_at_once) {
  auto ledger = quire::OffloadLedger::create({.num_slots = num_slots, .policy = policy}).value();
  std::uint64_t num_hits = 0;
  std::uint64_t num_blocks = 0;
  for (const auto& prompt : prompts) {
    const std::span<const quire::OffloadKey> keys(prompt);
    ledger->touch(keys);
    const std::uint32_t hits = ledger->lookup(keys);
    ledger->use(keys);
    if (!ledger->prepare_load(keys.first(hits))) std::abort();
    for (std::size_t begin = hits; begin < keys.size(); begin += stored_at_once) {
      const auto some = keys.subspan(begin, std::min(stored_at_once, keys.size() - begin));
      if (!ledger->prepare_store(some)) continue;
      ledger->touch(keys.first(begin + some.size()));
      ledger->complete_store(some);
    }
    if (!ledger->complete_load(keys.first(hits))) std::abort();
    num_hits += hits;
    num_blocks += keys.size();
  }
  return static_cast<double>(num_hits) / static_cast<double>(num_blocks);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const Prompts prompts = read_prompts();
  fmt::print("{:>10}", "slots");
  constexpr const char* kPolicies[] = {"lru", "arc", "arc_paper", "s3fifo"};
  for (const char* const name : kPolicies) fmt::print("{:>11}", name);
  for (int i = 2; i < argc; ++i) {
    fmt::print("\n{:>10}", argv[i]);
    for (const char* const name : kPolicies) {
      fmt::print("{:>10.1f}%", 100 * hit_ratio(prompts, quire::parse_offload_policy(name).value(), std::strtoll(argv[i], nullptr, 10),
                                               std::strtoull(argv[1], nullptr, 10)));
      std::fflush(stdout);
    }
  }
  fmt::print("\n");
}
