// Compares ways to copy KV blocks between the KV cache and host memory on a tier's thread: layer by layer, as in the KV cache (a page per
// layer and block), or as one contiguous block; with memcpy, or with stores that bypass the CPU's caches. Also measures how each way slows
// down another thread that computes from the CPU's caches.
//   copy_bench [LAYERS [PAGE_KIB [BLOCKS [ROUNDS]]]]    default: 30 12 600 15, the default model's shape
#include <fmt/format.h>
#include <sys/mman.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <span>
#include <thread>
#include <vector>

#include "base/random.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Shape {
  std::size_t layers, page, blocks;
  [[nodiscard]] std::size_t block() const { return layers * page; }
};

void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}

// Copies with 16-byte stores that bypass the CPU's caches.
void copy_past_caches(std::byte* to, const std::byte* from, std::size_t bytes) {
#ifdef __SSE2__
  for (std::size_t i = 0; i < bytes; i += 16)
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), _mm_load_si128(reinterpret_cast<const __m128i*>(from + i)));
  _mm_sfence();
#else
  std::memcpy(to, from, bytes);
#endif
}

struct Way {
  const char* name;
  bool whole;  // a block is contiguous
  void (*copy)(std::byte*, const std::byte*, std::size_t);
};
constexpr Way ways[] = {{"by layer, memcpy", false, copy},
                        {"by block, memcpy", true, copy},
                        {"by layer, past caches", false, copy_past_caches},
                        {"by block, past caches", true, copy_past_caches}};

std::byte* memory(std::size_t bytes) {
  void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) std::exit(1);
  madvise(at, bytes, MADV_HUGEPAGE);
  std::memset(at, 1, bytes);
  return static_cast<std::byte*>(at);
}

// A thread that reads the same 1 MiB repeatedly, as a matrix product reads its tile of weights.
struct Neighbour {
  std::vector<float> weights = std::vector<float>((1U << 20) / sizeof(float), 1.0F);
  std::atomic<std::uint64_t> passes = 0;
  std::atomic<float> sink = 0;
  std::jthread thread{[this](const std::stop_token& over) {
    while (!over.stop_requested()) {
      sink = std::accumulate(weights.begin(), weights.end(), 0.0F);
      passes.fetch_add(1, std::memory_order_relaxed);
    }
  }};
};

struct Seen {
  std::vector<double> gb_per_s, passes_per_s;
};

double middle(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

// Returns the geometric mean of the paired ratios to the first way, with its 95 % interval.
std::string ratio(const std::vector<double>& of, const std::vector<double>& to) {
  double sum = 0.0;
  double squares = 0.0;
  for (std::size_t i = 0; i < of.size(); ++i) {
    const double log = std::log(of[i] / to[i]);
    sum += log;
    squares += log * log;
  }
  const auto n = static_cast<double>(of.size());
  const double mean = sum / n;
  const double half = 1.96 * std::sqrt(std::max(0.0, squares / n - mean * mean) / n);
  return fmt::format("{:.3f} ({:.3f} to {:.3f})", std::exp(mean), std::exp(mean - half), std::exp(mean + half));
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int i, std::size_t otherwise) { return argc > i ? std::strtoull(argv[i], nullptr, 10) : otherwise; };
  const Shape shape{number(1, 30), number(2, 12) << 10, number(3, 600)};
  const std::size_t rounds = number(4, 15);
  if (shape.layers * shape.page * shape.blocks * rounds == 0) {
    fmt::print(stderr, "copy_bench: layers, KiB of a page, blocks and rounds are each at least 1\n");
    return 1;
  }
  std::byte* const pool = memory(shape.blocks * shape.block());
  std::byte* const host = memory(shape.blocks * shape.block());
  std::vector<std::size_t> order(shape.blocks);
  std::iota(order.begin(), order.end(), std::size_t{0});
  quire::Random random(1);
  const auto run = [&](const Way& way) {
    for (std::size_t i = order.size(); i-- > 1;) std::swap(order[i], order[random.below(static_cast<std::uint32_t>(i + 1))]);
    const auto begin = Clock::now();
    for (std::size_t i = 0; i < shape.blocks; ++i) {
      std::byte* const to = host + i * shape.block();
      if (way.whole)
        way.copy(to, pool + order[i] * shape.block(), shape.block());
      else
        for (std::size_t layer = 0; layer < shape.layers; ++layer)
          way.copy(to + layer * shape.page, pool + (layer * shape.blocks + order[i]) * shape.page, shape.page);
    }
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  std::vector<Seen> seen(std::size(ways));
  Neighbour neighbour;
  for (const Way& way : ways) run(way);
  double alone = 0.0;
  for (std::size_t round = 0; round < rounds; ++round) {
    for (std::size_t turn = 0; turn < std::size(ways); ++turn) {
      const std::size_t i = (turn + round) % std::size(ways);
      const std::uint64_t before = neighbour.passes;
      const double seconds = run(ways[i]);
      seen[i].gb_per_s.push_back(static_cast<double>(shape.blocks * shape.block()) / seconds / 1e9);
      seen[i].passes_per_s.push_back(static_cast<double>(neighbour.passes - before) / seconds);
    }
    const std::uint64_t before = neighbour.passes;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    alone = std::max(alone, static_cast<double>(neighbour.passes - before) / 0.05);
  }
  fmt::print("{} blocks of {} pages of {} KiB, {} rounds; the neighbour alone makes {:.0f} passes/s\n", shape.blocks, shape.layers,
             shape.page >> 10, rounds, alone);
  for (std::size_t i = 0; i < std::size(ways); ++i)
    fmt::print("{:24} {:5.2f} GB/s, over the first {}; neighbour {:.0f} passes/s, over the first {}\n", ways[i].name,
               middle(seen[i].gb_per_s), ratio(seen[i].gb_per_s, seen[0].gb_per_s), middle(seen[i].passes_per_s),
               ratio(seen[i].passes_per_s, seen[0].passes_per_s));
  return 0;
}
