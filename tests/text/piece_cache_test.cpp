#include "text/piece_cache.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace quire {
namespace {

using Ids = std::vector<TokenId>;

TokenId id_of(int number) {
  return static_cast<TokenId>(number);
}

TEST(PieceCache, FindsInsertedPieces) {
  PieceCache cache;
  Ids out{7};
  EXPECT_FALSE(cache.find("one", out));
  cache.insert("one", Ids{1, 2});
  EXPECT_TRUE(cache.find("one", out));
  EXPECT_EQ(out, (Ids{7, 1, 2}));
}

TEST(PieceCache, StaysBoundedAndKeepsPiecesInUse) {
  PieceCache cache;
  cache.insert("in use", Ids{42});
  cache.insert("never again", Ids{43});
  Ids out;
  for (int i = 0; i < 10 * static_cast<int>(PieceCache::kMaxEntries); ++i) {
    cache.insert("piece " + std::to_string(i), Ids{id_of(i)});
    if (i % 1000 == 0) {
      out.clear();
      ASSERT_TRUE(cache.find("in use", out)) << i;
      ASSERT_EQ(out, Ids{42});
    }
    ASSERT_LE(cache.size(), PieceCache::kMaxEntries);
  }
  EXPECT_FALSE(cache.find("never again", out));
  // A piece inserted after a flood of other pieces is cached too.
  cache.insert("late", Ids{44});
  EXPECT_TRUE(cache.find("late", out));
}

TEST(PieceCache, DoesNotCacheLongPieces) {
  PieceCache cache;
  const std::string longest(PieceCache::kMaxPieceBytes, 'a');
  cache.insert(longest, Ids{1});
  cache.insert(longest + "a", Ids{1});
  Ids out;
  EXPECT_TRUE(cache.find(longest, out));
  EXPECT_FALSE(cache.find(longest + "a", out));
}

TEST(PieceCache, IsThreadSafe) {
  PieceCache cache;
  std::vector<int> num_wrong(4);
  std::vector<std::thread> threads;
  for (int& wrong : num_wrong) {
    threads.emplace_back([&] {
      for (int i = 0; i < 30000; ++i) {
        const int number = i * 7919 % 20000;
        Ids out;
        if (!cache.find(std::to_string(number), out))
          cache.insert(std::to_string(number), Ids{id_of(number)});
        else if (out != Ids{id_of(number)})
          ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_wrong, std::vector<int>(4));
}

}  // namespace
}  // namespace quire
