// What is kept of responses: never more than there is room for, the longest unused go first, and nobody finds another's.
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

TEST(ResponseStore, ATenantFindsItsOwnOnly) {
  ResponseStore store(1 << 20);
  store.put("a", response_of("r", 10));
  EXPECT_NE(store.find("a", "r"), nullptr);
  EXPECT_EQ(store.find("b", "r"), nullptr);
  EXPECT_FALSE(store.erase("b", "r"));
  EXPECT_TRUE(store.erase("a", "r"));
  EXPECT_EQ(store.find("a", "r"), nullptr);
  EXPECT_EQ(store.num_bytes(), 0U);
}

TEST(ResponseStore, OneWithoutRoomKeepsNothing) {
  ResponseStore store(0);
  EXPECT_FALSE(store.is_on());
  store.put("", response_of("r", 0));
  EXPECT_EQ(store.find("", "r"), nullptr);
}

// A large one takes a while to free, and others ask meanwhile.
TEST(ResponseStore, WhatGoesIsFreedWithoutTheLock) {
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
  EXPECT_EQ(num_freed, 1U) << "another of its id";
  store.put("t", watched("b", 9000));
  EXPECT_EQ(num_freed, 2U) << "no room";
  EXPECT_TRUE(store.erase("t", "b"));
  EXPECT_EQ(num_freed, 3U);
}

// Beside a list in the order of use.
TEST(ResponseStore, IsAListOfTheLatestThatFit) {
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

}  // namespace
}  // namespace quire
