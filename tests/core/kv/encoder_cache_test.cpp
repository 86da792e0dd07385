#include "core/kv/encoder_cache.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>

#include "base/random.h"
#include "support/recording.h"

namespace quire::test {
namespace {

MultimodalFeature feature(std::string identifier, std::uint32_t offset, std::uint32_t length) {
  return {std::move(identifier), PlaceholderRange(offset, length)};
}

std::vector<std::string> freed(EncoderCache& cache) {
  const auto identifiers = cache.take_freed();
  return {identifiers.begin(), identifiers.end()};
}

// Python 3.11 gives this order. All numbers hash to one slot, so ten are stored next to each other and the others elsewhere.
TEST(SmallIntSetOrder, OrdersCollidingNumbersAsCPython) {
  std::vector<std::uint32_t> numbers;
  for (std::uint32_t i = 0; i < 15; ++i) numbers.push_back(3 + 128 * i);
  SmallIntSetOrder().apply(numbers);
  EXPECT_EQ(numbers, (std::vector<std::uint32_t>{1539, 259, 515, 3, 131, 387, 643, 771, 899, 1027, 1155, 1667, 1795, 1283, 1411}));
}

// Python 3.10 to 3.13 give these orders for a set to which these numbers are added and from which every third is discarded.
TEST(SmallIntSet, IteratesAsCPythonOverAChangingSet) {
  SmallIntSet set;
  std::vector<std::uint32_t> listed;
  std::map<std::uint32_t, std::vector<std::uint32_t>> seen;
  for (std::uint32_t i = 0; i < 200; ++i) {
    const std::uint32_t value = (i * i * 7 + 3 * i) % 23;
    i % 3 == 2 ? set.discard(value) : set.add(value);
    set.list(listed);
    set.check_invariants();
    seen[i] = listed;
  }
  EXPECT_EQ(seen[20], (std::vector<std::uint32_t>{0, 3, 9, 10, 17, 19, 22}));
  EXPECT_EQ(seen[60], (std::vector<std::uint32_t>{0, 4, 6, 9, 8, 11, 12, 19})) << "8 reuses the slot of another number";
  EXPECT_EQ(seen[199], (std::vector<std::uint32_t>{0, 4, 6, 9, 8, 10, 12, 11, 19}));
  for (std::uint32_t value = 0; value < 23; ++value) set.discard(value);
  EXPECT_TRUE(set.empty());
}

TEST(SmallIntSet, ReusesTheLastDeletedSlotOnTheProbePath) {
  SmallIntSet set;
  std::vector<std::uint32_t> listed;
  for (const std::uint32_t value : {8U, 1U}) set.add(value);
  set.discard(8);
  set.add(16);
  set.list(listed);
  EXPECT_EQ(listed, (std::vector<std::uint32_t>{16, 1}));
  for (const std::uint32_t value : {24U, 9U, 17U}) set.add(value);
  set.list(listed);
  EXPECT_EQ(listed, (std::vector<std::uint32_t>{1, 9, 16, 17, 24})) << "the table has grown";
}

TEST(PlaceholderRange, CountsTheEmbeddingsOfItsMask) {
  const std::vector<std::uint8_t> mask{0, 1, 0, 1, 1};
  const PlaceholderRange range(2, mask);
  EXPECT_EQ(range.num_embeds(), 3U);
  EXPECT_EQ(range.end(), 7U);
  EXPECT_EQ(range.embeds_in_range(3, 5), (std::pair<std::int64_t, std::int64_t>{1, 3}));
  EXPECT_EQ(range.embeds_in_range(0, 1), (std::pair<std::int64_t, std::int64_t>{0, 0}));
  EXPECT_EQ(range.embeds_in_range(0, 5), (std::pair<std::int64_t, std::int64_t>{0, 3}));
  EXPECT_EQ(range.moved_by(10).offset(), 12U);
  EXPECT_EQ(range.moved_by(10).num_embeds(), 3U);
}

TEST(PlaceholderRange, CountsEveryPositionWithoutAMask) {
  const PlaceholderRange range(2, 5);
  EXPECT_EQ(range.num_embeds(), 5U);
  EXPECT_EQ(range.embeds_in_range(1, 4), (std::pair<std::int64_t, std::int64_t>{1, 4}));
}

TEST(PlaceholderRange, CountsANegativeEndFromTheBackAsInPython) {
  const std::vector<std::uint8_t> mask{1, 0, 1};
  EXPECT_EQ(PlaceholderRange(0, mask).embeds_in_range(0, 0), (std::pair<std::int64_t, std::int64_t>{0, 2}));
  EXPECT_EQ(PlaceholderRange(0, mask).embeds_in_range(0, -1), (std::pair<std::int64_t, std::int64_t>{0, 1}));
}

TEST(Trap35, CanAllocateEvictsTheOldestOutputsUntilTheEmbeddingsFit) {
  EncoderCache cache(EncoderCacheMode::shared, 10);
  const std::vector<MultimodalFeature> features{feature("a", 0, 3), feature("b", 4, 3), feature("c", 8, 3), feature("d", 12, 2)};
  const EncoderInputs request{RequestId{1}, features};
  for (std::uint32_t input : {0U, 1U, 2U}) {
    ASSERT_TRUE(cache.can_allocate(request, input, 100, 0));
    cache.allocate(request, input);
  }
  cache.release(request, 1);
  cache.release(request, 0);
  // One slot is free. Two planned embeddings and two more evict b, not a.
  EXPECT_TRUE(cache.can_allocate(request, 3, 100, 2));
  EXPECT_EQ(freed(cache), std::vector<std::string>{"b"});
  EXPECT_EQ(cache.num_free(), 4);
  EXPECT_EQ(cache.num_freeable(), 7);
  EXPECT_FALSE(cache.contains("b")) << "b is evicted although nothing was allocated";
}

TEST(Trap35, CheckingACachedOutputTakesAReference) {
  EncoderCache cache(EncoderCacheMode::shared, 10);
  const std::vector<MultimodalFeature> features{feature("a", 0, 4)};
  const EncoderInputs first{RequestId{1}, features};
  const EncoderInputs second{RequestId{2}, features};
  cache.allocate(first, 0);
  cache.release_all(first);
  EXPECT_EQ(cache.num_freeable(), 10);
  EXPECT_TRUE(cache.check_and_reference(second, 0));
  EXPECT_EQ(cache.num_freeable(), 6);
  EXPECT_TRUE(cache.evictable().empty());
  cache.release_all(second);
  EXPECT_EQ(cache.num_freeable(), 10) << "a refused admission must undo the reference";
}

TEST(Trap35, ARefusedAllocationEvictsNothing) {
  EncoderCache cache(EncoderCacheMode::shared, 10);
  const std::vector<MultimodalFeature> features{feature("a", 0, 6), feature("b", 8, 5), feature("c", 16, 3)};
  const EncoderInputs request{RequestId{1}, features};
  cache.allocate(request, 0);
  cache.release_all(request);
  EXPECT_FALSE(cache.can_allocate(request, 1, 4, 0)) << "the item exceeds the compute budget";
  EXPECT_FALSE(cache.can_allocate(request, 1, 100, 6)) << "the items exceed the whole cache";
  EXPECT_TRUE(freed(cache).empty());
  EXPECT_TRUE(cache.contains("a"));
}

TEST(EncoderCache, ReferencesAnOutputOncePerRequest) {
  EncoderCache cache(EncoderCacheMode::shared, 10);
  const std::vector<MultimodalFeature> features{feature("a", 0, 2), feature("a", 4, 2)};
  const EncoderInputs request{RequestId{1}, features};
  cache.allocate(request, 0);
  EXPECT_TRUE(cache.check_and_reference(request, 1));
  EXPECT_EQ(cache.references("a").size(), 1U);
  cache.release(request, 1);
  EXPECT_EQ(cache.num_freeable(), 10) << "the other occurrence does not hold the output";
}

TEST(EncoderCache, HoldsAnOutputForEachInputOfARequest) {
  DecisionRules rules;
  rules.encoder_outputs_held_per_input = true;
  EncoderCache cache(EncoderCacheMode::shared, 10, rules);
  const std::vector<MultimodalFeature> features{feature("a", 0, 2), feature("b", 2, 2), feature("a", 4, 2), feature("b", 6, 2)};
  const EncoderInputs request{RequestId{1}, features};
  cache.allocate(request, 0);
  cache.allocate(request, 1);
  EXPECT_TRUE(cache.check_and_reference(request, 2));
  cache.release(request, 0);
  EXPECT_EQ(cache.num_freeable(), 6) << "another input with that identifier follows";
  std::vector<std::uint32_t> inputs;
  cache.cached_inputs(request, inputs);
  EXPECT_EQ(inputs, (std::vector<std::uint32_t>{1, 2})) << "the list has the inputs that the request holds, not all cached inputs";
  cache.release(request, 3);
  EXPECT_EQ(cache.num_freeable(), 6) << "the request does not hold that input";
  cache.release(request, 2);
  EXPECT_EQ(cache.num_freeable(), 8);
  cache.release_all(request);
  EXPECT_EQ(cache.num_freeable(), 10);
  cache.check_invariants();
}

TEST(EncoderCache, ReportsNothingAfterAReset) {
  EncoderCache cache(EncoderCacheMode::shared, 4);
  const std::vector<MultimodalFeature> features{feature("a", 0, 4), feature("b", 4, 4)};
  const EncoderInputs request{RequestId{1}, features};
  cache.allocate(request, 0);
  cache.release_all(request);
  ASSERT_TRUE(cache.can_allocate(request, 1, 10, 0));
  cache.reset();
  EXPECT_TRUE(freed(cache).empty());
  EXPECT_EQ(cache.num_free(), 4);
  EXPECT_EQ(cache.size(), 0U);
}

TEST(EncoderCache, FreesTheSizeOfTheLastItemOfAnOutput) {
  EncoderCache cache(EncoderCacheMode::shared, 10);
  const std::vector<MultimodalFeature> small{feature("a", 0, 2)};
  const std::vector<MultimodalFeature> large{feature("a", 0, 9), feature("b", 10, 17)};
  cache.allocate({RequestId{1}, small}, 0);
  EXPECT_TRUE(cache.check_and_reference({RequestId{2}, large}, 0));
  cache.release({RequestId{1}, small}, 0);
  cache.release({RequestId{2}, large}, 0);
  EXPECT_EQ(cache.num_freeable(), 17);
  cache.check_invariants();
  EXPECT_TRUE(cache.can_allocate({RequestId{2}, large}, 1, 100, 0));
  EXPECT_EQ(cache.num_free(), 17);
}

TEST(EncoderCache, KeepsAnOutputForOneStepInAnEncoderDecoderModel) {
  EncoderCache cache(EncoderCacheMode::encoder_decoder, 10);
  const std::vector<MultimodalFeature> features{feature("a", 0, 6)};
  const EncoderInputs request{RequestId{1}, features};
  ASSERT_TRUE(cache.can_allocate(request, 0, 100, 0));
  cache.allocate(request, 0);
  EXPECT_FALSE(cache.can_allocate(request, 0, 100, 0));
  EXPECT_FALSE(cache.check_and_reference(request, 0)) << "the output is never found again";
  EXPECT_TRUE(freed(cache).empty()) << "the worker still has to run the step";
  EXPECT_EQ(freed(cache), std::vector<std::string>{"a"});
  cache.release_all(request);
  EXPECT_EQ(cache.num_free(), 10);
}

TEST(EncoderBudget, HoldsAtLeastTheLargestItem) {
  const EncoderBudgetOptions options{.max_num_batched_tokens = 100, .max_num_encoder_input_tokens = 100, .encoder_cache_size = 200};
  const std::vector<std::int64_t> items{50, 150};
  const auto budget = encoder_budget(options, items);
  ASSERT_TRUE(budget);
  EXPECT_EQ(budget->compute_embeds, 150);
  EXPECT_EQ(budget->cache_embeds, 200);
  EXPECT_EQ(encoder_budget(options, {})->cache_embeds, 0);
  EncoderBudgetOptions whole = options;
  whole.disable_chunked_mm_input = true;
  const auto refused = encoder_budget(whole, items);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().field, "max_num_batched_tokens");
}

std::vector<std::uint32_t> numbers_from(const std::string& text) {
  std::vector<std::uint32_t> numbers;
  std::istringstream in(text);
  for (std::string number; std::getline(in, number, ',');) numbers.push_back(static_cast<std::uint32_t>(std::stoul(number)));
  return numbers;
}

std::string joined(const std::vector<std::uint32_t>& numbers) {
  std::string text;
  for (std::uint32_t number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
  return text;
}

// Lists a set after calls: numbers that were added and, after a minus, discarded.
std::vector<std::uint32_t> listed_after(const std::string& calls) {
  SmallIntSet set;
  std::istringstream in(calls);
  for (std::string call; std::getline(in, call, ',');)
    call.front() == '-' ? set.discard(static_cast<std::uint32_t>(std::stoul(call.substr(1))))
                        : set.add(static_cast<std::uint32_t>(std::stoul(call)));
  std::vector<std::uint32_t> listed_values;
  set.list(listed_values);
  return listed_values;
}

// Replays a recorded run of vLLM's managers: tools/record/encoder_cache.py.
class Replay {
 public:
  // Returns the answer to the call and the state after it, in the format of the record.
  std::string call(const std::string& text) {
    std::istringstream in(text);
    std::string verb, first, second;
    in >> verb >> first >> second;
    if (verb == "new") {
      cache_.emplace(first == "shared" ? EncoderCacheMode::shared : EncoderCacheMode::encoder_decoder, std::stoll(second));
      requests_.clear();
      return "";
    }
    if (verb == "set") {
      auto numbers = numbers_from(first);
      SmallIntSetOrder().apply(numbers);
      return joined(numbers);
    }
    if (verb == "live") return joined(listed_after(first));
    if (verb == "request") {
      add_request(text);
      return "";
    }
    const std::string result = answer(verb, first, second, in);
    std::string state = result + " | " + std::to_string(cache_->num_free()) + " " + std::to_string(cache_->num_freeable());
    for (std::string_view identifier : cache_->evictable()) state += " " + std::string(identifier);
    cache_->check_invariants();
    return state;
  }

 private:
  void add_request(const std::string& text) {
    std::istringstream in(text);
    std::string verb, identifier, offset, mask;
    std::uint64_t id = 0;
    in >> verb >> id;
    auto& features = requests_[id];
    for (std::string input; in >> input;) {
      std::istringstream parts(input);
      std::getline(parts, identifier, ':');
      std::getline(parts, offset, ':');
      std::getline(parts, mask);
      std::vector<std::uint8_t> bits;
      for (char bit : mask) bits.push_back(bit == '1' ? 1 : 0);
      features.push_back({identifier, PlaceholderRange(static_cast<std::uint32_t>(std::stoul(offset)), bits)});
    }
  }

  std::string answer(const std::string& verb, const std::string& first, const std::string& second, std::istringstream& in) {
    if (verb == "reset") {
      cache_->reset();
      return "";
    }
    if (verb == "freed") {
      std::string text;
      for (const std::string& identifier : cache_->take_freed()) text += (text.empty() ? "" : ",") + identifier;
      return text;
    }
    const std::uint64_t id = std::stoull(first);
    const EncoderInputs request{RequestId{id}, requests_.at(id)};
    if (verb == "cached") {
      std::vector<std::uint32_t> inputs;
      cache_->cached_inputs(request, inputs);
      return joined(inputs);
    }
    if (verb == "all") {
      cache_->release_all(request);
      return "";
    }
    const auto input = static_cast<std::uint32_t>(std::stoul(second));
    if (verb == "check") return cache_->check_and_reference(request, input) ? "1" : "0";
    if (verb == "can") {
      std::int64_t budget = 0, planned = 0;
      in >> budget >> planned;
      return cache_->can_allocate(request, input, budget, planned) ? "1" : "0";
    }
    verb == "allocate" ? cache_->allocate(request, input) : cache_->release(request, input);
    return "";
  }

  std::optional<EncoderCache> cache_;
  std::map<std::uint64_t, std::vector<MultimodalFeature>> requests_;
};

TEST(EncoderCache, GivesTheRecordedAnswersOfVllm) {
  std::istringstream file = open_recording("tests/golden/encoder_cache.txt.xz");
  Replay replay;
  std::size_t number = 0;
  for (std::string line; std::getline(file, line); ++number) {
    const auto equals = line.find(" = ");
    const std::string expected = equals == std::string::npos ? "" : line.substr(equals + 3);
    ASSERT_EQ(replay.call(line.substr(0, equals)), expected) << "line " << number + 1 << ": " << line;
  }
  EXPECT_GT(number, 1500U);
}

// Implements the rules in their simplest form; a vector keeps the order.
struct NaiveEncoderCache {
  std::int64_t num_free, num_freeable;
  std::map<std::string, std::set<std::uint64_t>> cached;
  std::vector<std::pair<std::string, std::int64_t>> evictable;
  std::vector<std::string> freed;

  bool check(std::uint64_t id, const MultimodalFeature& item) {
    const auto found = cached.find(item.identifier);
    if (found == cached.end()) return false;
    if (found->second.empty()) {
      num_freeable -= item.position.num_embeds();
      std::erase_if(evictable, [&](const auto& entry) { return entry.first == item.identifier; });
    }
    found->second.insert(id);
    return true;
  }
  bool can(const MultimodalFeature& item, std::int64_t budget, std::int64_t planned) {
    const std::int64_t needed = item.position.num_embeds() + planned;
    if (item.position.num_embeds() > budget || (needed > num_free && needed > num_freeable)) return false;
    while (needed > num_free) {
      num_free += evictable.front().second;
      cached.erase(evictable.front().first);
      freed.push_back(evictable.front().first);
      evictable.erase(evictable.begin());
    }
    return true;
  }
  void allocate(std::uint64_t id, const MultimodalFeature& item) {
    cached[item.identifier].insert(id);
    num_free -= item.position.num_embeds();
    num_freeable -= item.position.num_embeds();
  }
  void release(std::uint64_t id, const MultimodalFeature& item) {
    const auto found = cached.find(item.identifier);
    if (found == cached.end() || found->second.empty()) return;
    found->second.erase(id);
    if (found->second.empty()) {
      evictable.emplace_back(item.identifier, item.position.num_embeds());
      num_freeable += item.position.num_embeds();
    }
  }
};

TEST(EncoderCache, EqualsTheNaiveModelOverRandomCalls) {
  Random random(3);
  for (int round = 0; round < 20; ++round) {
    const auto capacity = static_cast<std::int64_t>(random.between(8, 60));
    EncoderCache cache(EncoderCacheMode::shared, capacity);
    NaiveEncoderCache naive{.num_free = capacity, .num_freeable = capacity, .cached = {}, .evictable = {}, .freed = {}};
    std::vector<MultimodalFeature> items;
    for (std::uint32_t i = 0; i < 7; ++i)
      items.push_back(feature("item " + std::to_string(i), 10 * i, static_cast<std::uint32_t>(random.between(1, 9))));
    for (int step = 0; step < 400; ++step) {
      const std::uint64_t id = random.below(5);
      const auto input = static_cast<std::uint32_t>(random.below(items.size()));
      const EncoderInputs request{RequestId{id}, items};
      if (random.chance(0.5)) {
        cache.release(request, input);
        naive.release(id, items[input]);
      } else {
        const bool known = cache.check_and_reference(request, input);
        ASSERT_EQ(known, naive.check(id, items[input]));
        const auto budget = static_cast<std::int64_t>(random.below(12));
        const auto planned = static_cast<std::int64_t>(random.below(6));
        const bool can = !known && cache.can_allocate(request, input, budget, planned);
        ASSERT_EQ(can, !known && naive.can(items[input], budget, planned));
        if (can) {
          cache.allocate(request, input);
          naive.allocate(id, items[input]);
        }
      }
      ASSERT_EQ(cache.num_free(), naive.num_free);
      ASSERT_EQ(cache.num_freeable(), naive.num_freeable);
      const auto evictable = cache.evictable();
      ASSERT_TRUE(std::ranges::equal(evictable, naive.evictable, {}, {}, [](const auto& entry) { return std::string_view(entry.first); }));
      if (random.chance(0.1)) ASSERT_EQ(freed(cache), std::exchange(naive.freed, {}));
      cache.check_invariants();
    }
  }
}

}  // namespace
}  // namespace quire::test
