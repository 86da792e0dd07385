// Measures the time to hash a block of 16 tokens, per mode. Arguments MODE=NS are the times of other programs for the same work, which are
// printed next to quire's.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "base/random.h"
#include "core/kv/hash/hash_function.h"

namespace {

using namespace quire;
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kBlockSize = 16;
constexpr std::size_t kNumBlocks = 4096;
constexpr int kNumRounds = 41;

// Returns the median over rounds, because other programs on the machine disturb some rounds.
double nanoseconds_per_block(HashFunction& function, const RequestContent& content) {
  std::vector<BlockHash> hashes;
  hashes.reserve(kNumBlocks);
  std::vector<double> rounds;
  for (int i = 0; i < kNumRounds; ++i) {
    hashes.clear();
    const auto start = Clock::now();
    hash_full_blocks(function, content, kBlockSize, hashes);
    rounds.push_back(std::chrono::duration<double, std::nano>(Clock::now() - start).count() / static_cast<double>(hashes.size()));
  }
  std::ranges::nth_element(rounds, rounds.begin() + kNumRounds / 2);
  return rounds[kNumRounds / 2];
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, double> others;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const auto equals = argument.find('=');
    if (equals == std::string::npos) {
      fmt::print(stderr, "usage: {} [MODE=NANOSECONDS...]\n", argv[0]);
      return 1;
    }
    others[argument.substr(0, equals)] = std::atof(argument.c_str() + equals + 1);
  }
  Random random(1);
  std::vector<TokenId> tokens(kNumBlocks * kBlockSize);
  std::ranges::generate(tokens, [&] { return static_cast<TokenId>(random.below(128256)); });
  const RequestContent content{.tokens = tokens, .lora_name = {}, .multimodal = {}, .cache_salt = {}, .prompt_embeds = {}};
  fmt::print("ns per block of {} tokens, vocabulary of 128,256\n{:<12} {:>8} {:>8} {:>8}\n", kBlockSize, "", "quire", "Python", "ratio");
  for (const char* name : {"sha256", "sha256_cbor", "xxhash", "xxhash_cbor", "canonical"}) {
    const auto function = make_hash_function({.algorithm = *parse_hash_algorithm(name), .seed = "0", .root = {}, .extra_keys = nullptr});
    if (!function) {
      fmt::print("{:<12} {}\n", name, function.error().to_string());
      continue;
    }
    const double own = nanoseconds_per_block(**function, content);
    const auto other = others.find(name);
    fmt::print("{:<12} {:>8.0f} {:>8} {:>8}\n", name, own, other == others.end() ? "-" : fmt::format("{:.0f}", other->second),
               other == others.end() ? "-" : fmt::format("{:.1f}", other->second / own));
  }
}
