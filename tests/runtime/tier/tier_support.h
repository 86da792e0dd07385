#pragma once
// Blocks whose content follows from a number, a folder that is removed with the test, and a store with blocking jobs.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <future>
#include <latch>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/random.h"
#include "runtime/tier/disk_store.h"

namespace quire::test {

inline OffloadKey tier_name(std::uint64_t number) {
  OffloadKey name{.hash = {}, .group = static_cast<std::uint32_t>(number % 3)};
  Random random(number);
  for (std::uint8_t& byte : name.hash) byte = static_cast<std::uint8_t>(random.next());
  return name;
}

inline std::vector<std::byte> tier_block(std::uint64_t number, std::size_t bytes) {
  std::vector<std::byte> block(bytes);
  Random random(~number);
  for (std::size_t i = 0; i < bytes; i += 8) {
    const std::uint64_t word = random.next();
    std::memcpy(block.data() + i, &word, std::min<std::size_t>(8, bytes - i));
  }
  return block;
}

// The bound is safe on a busy machine: a wait that takes longer never ends.
inline constexpr double kMuchTooLong_s = 30.0;

// Waits until another thread makes the condition true. Returns false after kMuchTooLong_s.
template <class Condition>
bool comes_true(const Condition& condition) {
  const auto begin = std::chrono::steady_clock::now();
  while (!condition()) {
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() > kMuchTooLong_s) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

class TempFolder {
 public:
  explicit TempFolder(const std::string& above = std::filesystem::temp_directory_path()) {
    std::string pattern = above + "/quire-tier-XXXXXX";
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    path_ = pattern;
  }
  ~TempFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }
  // Counts like du.
  [[nodiscard]] std::uint64_t disk_bytes() const {
    std::uint64_t sum = taken(path_);
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path_)) sum += taken(entry.path());
    return sum;
  }

 private:
  static std::uint64_t taken(const std::string& path) {
    struct stat status{};
    EXPECT_EQ(stat(path.c_str(), &status), 0);
    return static_cast<std::uint64_t>(status.st_blocks) * 512;
  }
  std::string path_;
};

enum class Loaded : std::uint8_t { right, wrong, absent, refused, failed };

// A store that runs one job at a time.
class TierClient {
 public:
  TierClient(std::unique_ptr<TierFiles> files, const DiskStoreOptions& options) : bytes_(options.block_bytes) {
    auto opened = DiskStore::open(std::move(files), options);
    if (opened) store_ = *std::move(opened);
    if (!opened) error_ = opened.error();
  }

  [[nodiscard]] bool is_open() const { return store_ != nullptr; }
  [[nodiscard]] const Error& error() const { return error_; }
  DiskStore* operator->() { return store_.get(); }
  DiskStore& operator*() { return *store_; }
  void close() { store_.reset(); }

  TierOutcome store(std::uint32_t place, std::uint64_t number) {
    std::promise<TierOutcome> over;
    store_->submit({.verb = TierJob::Verb::store,
                    .place = place,
                    .name = tier_name(number),
                    .bytes = static_cast<std::uint32_t>(bytes_),
                    .copy =
                        [&](std::span<std::byte> bytes) {
                          std::ranges::copy(tier_block(number, bytes.size()), bytes.begin());
                          return true;
                        },
                    .over = [&](TierOutcome outcome) { over.set_value(outcome); }});
    return over.get_future().get();
  }
  Loaded load(std::uint32_t place, std::uint64_t number) { return load_all({{place, number}}).front(); }
  // Loads several blocks at a time, given as slots and expected numbers.
  std::vector<Loaded> load_all(const std::vector<std::pair<std::uint32_t, std::uint64_t>>& wanted) {
    std::vector<Loaded> loaded(wanted.size());
    std::latch num_left(static_cast<std::ptrdiff_t>(wanted.size()));
    for (std::size_t i = 0; i < wanted.size(); ++i)
      store_->submit({.verb = TierJob::Verb::load,
                      .place = wanted[i].first,
                      .name = tier_name(wanted[i].second),
                      .bytes = static_cast<std::uint32_t>(bytes_),
                      .copy =
                          [&, i](std::span<std::byte> bytes) {
                            const bool is_right = std::ranges::equal(bytes, tier_block(wanted[i].second, bytes.size()));
                            loaded[i] = is_right ? Loaded::right : Loaded::wrong;
                            return true;
                          },
                      .over =
                          [&, i](TierOutcome outcome) {
                            if (outcome == TierOutcome::absent) loaded[i] = Loaded::absent;
                            if (outcome == TierOutcome::refused) loaded[i] = Loaded::refused;
                            if (outcome == TierOutcome::failed) loaded[i] = Loaded::failed;
                            num_left.count_down();
                          }});
    num_left.wait();
    return loaded;
  }
  // Returns the restored blocks when the whole table is read.
  std::vector<RestoredBlock> restored() {
    std::vector<RestoredBlock> blocks;
    for (std::uint32_t known = 0; known < store_->num_places(); std::this_thread::sleep_for(std::chrono::microseconds(20)))
      known = store_->restored(known, blocks);
    return blocks;
  }

 private:
  std::uint64_t bytes_;
  std::unique_ptr<DiskStore> store_;
  Error error_;
};

inline TierFingerprint tier_fingerprint(std::uint8_t value = 7) {
  TierFingerprint fingerprint;
  fingerprint.fill(value);
  return fingerprint;
}

inline std::unique_ptr<TierFiles> tier_folder(const std::string& path, TierIo io = TierIo::automatic) {
  auto files = open_tier_folder(path, io);
  EXPECT_TRUE(files.has_value()) << (files ? "" : files.error().to_string());
  return files ? *std::move(files) : nullptr;
}

}  // namespace quire::test
