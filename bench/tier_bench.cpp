// Measures the store of the disk tier alone: writes and reads blocks at random, with checksums. Prints MiB/s by block size and direction.
//   tier_bench [FOLDER [MIB [DEPTH [KIB]]]]    default: the folder for temporary files, 512, 8, blocks of 64 KiB to 2 MiB
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "base/random.h"
#include "runtime/tier/disk_store.h"

namespace {

using quire::TierJob;

// Stores or loads every slot once, in a random order. Returns MiB/s.
double move_all(quire::DiskStore& store, TierJob::Verb verb, std::uint32_t bytes, quire::Random& random) {
  std::vector<std::byte> memory(bytes, std::byte{1});
  std::vector<std::uint32_t> order(store.num_places());
  std::iota(order.begin(), order.end(), 0U);
  for (std::size_t i = order.size(); i-- > 1;) std::swap(order[i], order[random.below(i + 1)]);
  std::atomic<std::uint32_t> num_over = 0;
  std::atomic<std::uint32_t> num_bad = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (const std::uint32_t place : order)
    store.submit({.verb = verb,
                  .place = place,
                  .name = {.hash = {1}, .group = place},
                  .bytes = bytes,
                  .copy =
                      [&](std::span<std::byte> payload) {
                        const bool stores = verb == TierJob::Verb::store;
                        std::memcpy(stores ? payload.data() : memory.data(), stores ? memory.data() : payload.data(), payload.size());
                        return true;
                      },
                  .over =
                      [&](quire::TierOutcome outcome) {
                        num_bad += outcome == quire::TierOutcome::done ? 0 : 1;
                        ++num_over;
                        num_over.notify_one();
                      }});
  for (std::uint32_t seen = num_over; seen < order.size(); seen = num_over) num_over.wait(seen);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  if (num_bad > 0) fmt::print("{} blocks failed\n", num_bad.load());
  return static_cast<double>(order.size()) * bytes / taken.count() / (1 << 20);
}

bool measure(const std::string& above, std::uint64_t budget, std::uint32_t depth, quire::TierIo io, std::uint32_t bytes) {
  const std::string folder = above + "/quire-tier-bench";
  std::filesystem::remove_all(folder);
  auto files = quire::open_tier_folder(folder, io);
  if (!files) return fmt::print("{}\n", files.error().to_string()), false;
  auto store = quire::DiskStore::open(*std::move(files), {.budget_bytes = budget, .block_bytes = bytes, .fingerprint = {}, .depth = depth});
  if (!store) return fmt::print("{}\n", store.error().to_string()), false;
  quire::Random random(1);
  const double fresh = move_all(**store, TierJob::Verb::store, bytes, random);
  const double again = move_all(**store, TierJob::Verb::store, bytes, random);
  const double read = move_all(**store, TierJob::Verb::load, bytes, random);
  fmt::print("{:>8} {:>9} {:>12.0f} {:>12.0f} {:>12.0f}\n", io == quire::TierIo::threads ? "threads" : "io_uring", bytes >> 10U, fresh,
             again, read);
  store->reset();
  std::filesystem::remove_all(folder);
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string above = argc > 1 ? argv[1] : std::filesystem::temp_directory_path().string();
  const std::uint64_t budget = (argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 512) << 20U;
  const auto depth = static_cast<std::uint32_t>(argc > 3 ? std::strtoul(argv[3], nullptr, 10) : 8);
  if (argc > 4)
    return measure(above, budget, depth, quire::TierIo::automatic, static_cast<std::uint32_t>(std::stoul(argv[4])) << 10U) ? 0 : 1;
  fmt::print("{:>8} {:>9} {:>12} {:>12} {:>12}\n", "way", "KiB/block", "write MiB/s", "again", "read");
  for (const std::uint32_t kib : {64U, 128U, 360U, 512U, 1024U, 2048U})
    for (const quire::TierIo io : {quire::TierIo::io_uring, quire::TierIo::threads})
      if (!measure(above, budget, depth, io, kib << 10U) && io == quire::TierIo::threads) return 1;
}
