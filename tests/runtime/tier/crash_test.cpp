// Kills a process (kill -9) that stores, evicts, loads and starts. Another process must find all stored blocks and no wrong one.
// QUIRE_TIER_KILLS=300 makes the test longer.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>

#include "runtime/tier/slot_index.h"
#include "runtime/tier/tier_support.h"
#include "support/sanitized.h"

namespace quire::test {
namespace {

constexpr std::uint64_t kCrashBlock = 40'000;

DiskStoreOptions crash_tier() {
  return {.budget_bytes = 4 << 20, .block_bytes = kCrashBlock, .fingerprint = tier_fingerprint(), .depth = 4};
}

// A report of the child about a slot, sent through a pipe.
struct Told {
  enum class What : std::uint32_t { begins, done, wrong } what;
  std::uint32_t place;
  std::uint64_t number;
};

// Stores blocks, several at a time, and loads the blocks that it finds, until it is killed.
class Victim {
 public:
  Victim(const std::string& folder, TierIo io, int out, std::uint64_t first)
      : out_(out), number_(first), store_(DiskStore::open(tier_folder(folder, io), crash_tier()).value()) {}

  [[noreturn]] void run() {
    for (std::vector<RestoredBlock> blocks;; blocks.clear()) {
      const std::uint32_t known = known_ < store_->num_places() ? store_->restored(known_, blocks) : known_;
      {
        const std::lock_guard lock(mutex_);
        index_.add_restored(known, blocks);
      }
      known_ = known;
      const std::uint64_t number = number_++;
      store(number);
      if (number % 3 == 0) load(number - number % 7);
      while (under_way_ > 6) usleep(20);
    }
  }

 private:
  void tell(Told::What what, std::uint32_t place, std::uint64_t number) const {
    const Told told{what, place, number};
    if (write(out_, &told, sizeof told) != sizeof told) _exit(3);
  }
  void store(std::uint64_t number) {
    std::optional<std::uint32_t> place;
    {
      const std::lock_guard lock(mutex_);
      place = index_.take();
    }
    if (!place) return;
    tell(Told::What::begins, *place, number);
    ++under_way_;
    store_->submit({.verb = TierJob::Verb::store,
                    .place = *place,
                    .name = tier_name(number),
                    .bytes = kCrashBlock,
                    .copy =
                        [number](std::span<std::byte> bytes) {
                          std::ranges::copy(tier_block(number, bytes.size()), bytes.begin());
                          return true;
                        },
                    .over =
                        [this, number, at = *place](TierOutcome outcome) {
                          const std::lock_guard lock(mutex_);
                          if (outcome == TierOutcome::done) {
                            tell(Told::What::done, at, number);
                            index_.stored(tier_name(number), at);
                          } else {
                            index_.release(at);
                          }
                          --under_way_;
                        }});
  }
  void load(std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    const auto place = index_.find(tier_name(number));
    if (!place) return;
    ++under_way_;
    store_->submit({.verb = TierJob::Verb::load,
                    .place = *place,
                    .name = tier_name(number),
                    .bytes = kCrashBlock,
                    .copy =
                        [this, number, at = *place](std::span<std::byte> bytes) {
                          if (!std::ranges::equal(bytes, tier_block(number, bytes.size()))) tell(Told::What::wrong, at, number);
                          return true;
                        },
                    .over = [this](TierOutcome) { --under_way_; }});
  }

  const int out_;
  std::uint64_t number_;
  std::mutex mutex_;
  SlotIndex index_;
  std::uint32_t known_ = 0;
  std::atomic<int> under_way_ = 0;
  std::unique_ptr<DiskStore> store_;
};

// The expected numbers by slot. A slot whose store had begun may hold any correct block.
struct Expected {
  std::map<std::uint32_t, std::uint64_t> held;
  std::set<std::uint64_t> numbers;  // numbers that may be found
  std::uint64_t num_done = 0;

  // Returns false at the end of the pipe.
  bool read(int in) {
    Told told{};
    if (::read(in, &told, sizeof told) != sizeof told) return false;
    EXPECT_NE(told.what, Told::What::wrong) << "block " << told.number;
    held.erase(told.place);
    numbers.insert(told.number);
    if (told.what == Told::What::done) held[told.place] = told.number;
    num_done += told.what == Told::What::done ? 1 : 0;
    return true;
  }
};

// Starts a victim and kills it after some microseconds or after a number of stores.
void run_and_kill(const std::string& folder, std::uint64_t round, Random& random, Expected& expected) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    Victim(folder, round % 2 == 0 ? TierIo::automatic : TierIo::threads, ends[1], 1 + round * 1'000'000).run();
  }
  close(ends[1]);
  if (random.chance(0.3))
    usleep(static_cast<useconds_t>(random.below(4000)));
  else
    for (std::uint64_t left = random.below(400); left > 0 && expected.read(ends[0]);) --left;
  kill(child, SIGKILL);
  while (expected.read(ends[0])) {
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "the child ended by itself: " << status;
  close(ends[0]);
}

// Loads all found blocks. Returns how many of the expected blocks are present.
std::uint64_t find_again(const std::string& folder, Expected& expected) {
  TierClient store(tier_folder(folder), crash_tier());
  EXPECT_TRUE(store.is_open()) << store.error().to_string();
  std::map<OffloadKey, std::uint64_t, decltype([](const OffloadKey& a, const OffloadKey& b) { return a.hash < b.hash; })> number_of;
  for (const std::uint64_t number : expected.numbers) number_of[tier_name(number)] = number;
  std::uint64_t num_found = 0;
  std::map<std::uint32_t, std::uint64_t> held;
  for (const RestoredBlock& block : store.restored()) {
    const auto known = number_of.find(block.name);
    if (known == number_of.end()) {
      ADD_FAILURE() << "this block was never stored";
      continue;
    }
    const Loaded loaded = store.load(block.place, known->second);
    EXPECT_TRUE(loaded == Loaded::right || loaded == Loaded::refused) << "block " << known->second << ": " << static_cast<int>(loaded);
    if (loaded != Loaded::right) continue;
    held[block.place] = known->second;
    const auto wanted = expected.held.find(block.place);
    num_found += wanted != expected.held.end() && wanted->second == known->second ? 1 : 0;
  }
  expected.held = std::move(held);
  expected.numbers.clear();
  for (const auto& [place, number] : expected.held) expected.numbers.insert(number);
  return num_found;
}

TEST(TierCrashTest, LosesNoStoredBlockWhenTheProcessIsKilled) {
  const TempFolder folder;
  const char* wanted = std::getenv("QUIRE_TIER_KILLS");
  const std::uint64_t num_kills = wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : (kSanitized ? 10 : 30);
  Random random(21);
  Expected expected;
  std::uint64_t num_expected = 0;
  std::uint64_t num_found = 0;
  for (std::uint64_t round = 0; round < num_kills && !HasFatalFailure(); ++round) {
    run_and_kill(folder.path(), round, random, expected);
    num_expected += expected.held.size();
    num_found += find_again(folder.path(), expected);
    EXPECT_LE(folder.disk_bytes(), crash_tier().budget_bytes);
  }
  RecordProperty("kills", std::to_string(num_kills));
  RecordProperty("blocks_stored", std::to_string(expected.num_done));
  RecordProperty("blocks_found", std::to_string(num_found));
  std::printf("%lu kills, %lu blocks stored, %lu of %lu found again\n", num_kills, expected.num_done, num_found, num_expected);
  EXPECT_GT(expected.num_done, 20 * num_kills) << "the test covers too few stores";
  EXPECT_EQ(num_found, num_expected);
}

}  // namespace
}  // namespace quire::test
