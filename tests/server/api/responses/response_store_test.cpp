// Tests the response store: it stays within its budget, evicts the least recently used responses, and separates tenants.
#include "server/api/responses/response_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace quire {
namespace {

std::shared_ptr<const StoredResponse> response_of(const std::string& id, std::size_t num_bytes) {
  return std::make_shared<const StoredResponse>(StoredResponse{id, std::string(num_bytes, 'x'), "[]", "[]", {1, 2, 3}});
}

TEST(ResponseStore, FindsOnlyResponsesOfTheSameTenant) {
  ResponseStore store(1 << 20);
  store.put("a", response_of("r", 10));
  EXPECT_NE(store.find("a", "r"), nullptr);
  EXPECT_EQ(store.find("b", "r"), nullptr);
  EXPECT_FALSE(store.erase("b", "r"));
  EXPECT_TRUE(store.erase("a", "r"));
  EXPECT_EQ(store.find("a", "r"), nullptr);
  EXPECT_EQ(store.num_bytes(), 0U);
}

// A tenant that stores without end evicts its own responses, but none that another tenant keeps within its share.
TEST(ResponseStore, EvictsResponsesOfTheTenantThatStoresMost) {
  const std::uint64_t num_bytes = response_of("r00", 1000)->num_bytes();
  ResponseStore store(10 * num_bytes);
  for (int i = 10; i < 14; ++i) store.put("few", response_of("f" + std::to_string(i), 1000));
  for (int i = 10; i < 99; ++i) store.put("many", response_of("m" + std::to_string(i), 1000));
  for (int i = 10; i < 14; ++i) EXPECT_NE(store.find("few", "f" + std::to_string(i)), nullptr) << i;
  for (int i = 10; i < 93; ++i) EXPECT_EQ(store.find("many", "m" + std::to_string(i)), nullptr) << i;
  for (int i = 93; i < 99; ++i) EXPECT_NE(store.find("many", "m" + std::to_string(i)), nullptr) << i;
  // A third tenant gets room from the tenant with the most bytes.
  for (int i = 10; i < 12; ++i) store.put("third", response_of("t" + std::to_string(i), 1000));
  for (int i = 10; i < 14; ++i) EXPECT_NE(store.find("few", "f" + std::to_string(i)), nullptr) << i;
  for (int i = 10; i < 12; ++i) EXPECT_NE(store.find("third", "t" + std::to_string(i)), nullptr) << i;
  // A response that is larger than its tenant's possible share is not stored and evicts nothing.
  store.put("fourth", response_of("large", 9 * 1000));
  EXPECT_EQ(store.find("fourth", "large"), nullptr);
  EXPECT_NE(store.find("few", "f10"), nullptr);
  EXPECT_LE(store.num_bytes(), 10 * num_bytes);
}

TEST(ResponseStore, StoresNothingWithoutABudget) {
  ResponseStore store(0);
  EXPECT_FALSE(store.is_on());
  store.put("", response_of("r", 0));
  EXPECT_EQ(store.find("", "r"), nullptr);
}

// Freeing a large response takes time, and other threads access the store meanwhile.
TEST(ResponseStore, FreesEvictedResponsesOutsideTheLock) {
  constexpr std::uint64_t kMaxBytes = 10'000;
  ResponseStore store(kMaxBytes);
  std::vector<std::future<std::uint64_t>> others;
  std::size_t num_freed = 0;
  const auto watched = [&](const std::string& id, std::size_t num_bytes) {
    return std::shared_ptr<const StoredResponse>(new StoredResponse{id, std::string(num_bytes, 'x'), "[]", "[]", {}},
                                                 [&](const StoredResponse* response) {
                                                   others.push_back(std::async(std::launch::async, [&] { return store.num_bytes(); }));
                                                   EXPECT_EQ(others.back().wait_for(std::chrono::seconds(10)), std::future_status::ready);
                                                   ++num_freed;
                                                   delete response;
                                                 });
  };
  store.put("t", watched("a", 6000));
  store.put("t", watched("a", 5000));
  EXPECT_EQ(num_freed, 1U) << "a response with the same id replaces it";
  store.put("t", watched("b", 9000));
  EXPECT_EQ(num_freed, 2U) << "it is evicted";
  EXPECT_TRUE(store.erase("t", "b"));
  EXPECT_EQ(num_freed, 3U);
}

// The test compares the store with a list in order of use.
TEST(ResponseStore, KeepsTheMostRecentlyUsedResponsesThatFit) {
  constexpr std::uint64_t kMaxBytes = 20'000;
  ResponseStore store(kMaxBytes);
  std::vector<std::shared_ptr<const StoredResponse>> model;  // the latest used last
  std::mt19937 random(1);
  std::size_t num_dropped = 0, num_found = 0;
  const auto position = [&](const std::string& id) {
    return std::ranges::find_if(model, [&](const auto& response) { return response->id == id; });
  };
  for (int step = 0; step < 20'000; ++step) {
    const std::string id = std::to_string(random() % 40);
    const auto at = position(id);
    if (random() % 3 == 0) {
      const auto response = response_of(id, random() % 100 == 0 ? kMaxBytes : random() % 3000);
      store.put("t", response);
      if (response->num_bytes() > kMaxBytes) continue;
      if (at != model.end()) model.erase(at);
      model.push_back(response);
      const auto total = [&] {
        std::uint64_t sum = 0;
        for (const auto& kept : model) sum += kept->num_bytes();
        return sum;
      };
      for (; total() > kMaxBytes; ++num_dropped) model.erase(model.begin());
      ASSERT_EQ(store.num_bytes(), total());
    } else if (random() % 8 == 0) {
      ASSERT_EQ(store.erase("t", id), at != model.end());
      if (at != model.end()) model.erase(at);
    } else {
      const auto found = store.find("t", id);
      ASSERT_EQ(found, at == model.end() ? nullptr : *at);
      if (at == model.end()) continue;
      ++num_found;
      model.push_back(*at);
      model.erase(position(id));
    }
  }
  EXPECT_GT(num_dropped, 1000U);
  EXPECT_GT(num_found, 1000U);
}

TEST(ResponseStoreBytes, CountAllTextsAndTokens) {
  const StoredResponse empty{"r", "", "", "", {}};
  const StoredResponse full{"r", "12345", "123", "1234567", {1, 2}};
  EXPECT_EQ(empty.num_bytes(), 512U);
  EXPECT_EQ(full.num_bytes(), 512U + 15U + 2 * sizeof(TokenId));
  const auto shared = [](const std::string& id, std::size_t num_bytes) {
    return std::make_shared<const StoredResponse>(StoredResponse{id, std::string(num_bytes - 512, 'x'), "", "", {}});
  };
  ResponseStore exact(2000);
  exact.put("t", shared("a", 2000));
  EXPECT_NE(exact.find("t", "a"), nullptr) << "a response of exactly the budget fits";
  exact.put("t", shared("b", 2001));
  EXPECT_EQ(exact.find("t", "b"), nullptr);
  EXPECT_NE(exact.find("t", "a"), nullptr) << "it evicts nothing";
  EXPECT_EQ(exact.num_bytes(), 2000U);
  // If two tenants hold equally many bytes, the first by name loses a response.
  ResponseStore even(3000);
  even.put("b", shared("b", 1500));
  even.put("a", shared("a", 1000));
  even.put("a", shared("a2", 600));
  EXPECT_EQ(even.find("a", "a"), nullptr) << "with its new response, a holds more than b";
  EXPECT_NE(even.find("b", "b"), nullptr);
  even.put("a", shared("a3", 900));
  EXPECT_NE(even.find("b", "b"), nullptr);
  EXPECT_NE(even.find("a", "a2"), nullptr) << "both tenants hold 1500 bytes";
  even.put("c", shared("c", 1500));
  EXPECT_EQ(even.find("a", "a3"), nullptr) << "of equal tenants the first by name loses its least recently used response";
  EXPECT_NE(even.find("a", "a2"), nullptr);
  EXPECT_EQ(even.find("b", "b"), nullptr) << "then this tenant holds the most";
  EXPECT_NE(even.find("c", "c"), nullptr);
  // A tenant without responses is not asked for room.
  ResponseStore left(2000);
  left.put("a", shared("a", 1000));
  EXPECT_TRUE(left.erase("a", "a"));
  left.put("b", shared("b", 1500));
  left.put("b", shared("b2", 1500));
  EXPECT_NE(left.find("b", "b2"), nullptr);
}

}  // namespace
}  // namespace quire
