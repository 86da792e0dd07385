#pragma once
// Requests with block hashes, for connectors that a test calls directly. All blocks have kSmallBlock tokens and are in cache group 0.
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/connect/offload_connector.h"
#include "quire/base/request.h"
#include "runtime/tier/tier_support.h"
#include "support/small_cache.h"

namespace quire::test {

// The offload key of the block with this number.
inline OffloadKey small_key(std::uint64_t number) {
  OffloadKey key = tier_name(number);
  key.group = 0;
  return key;
}

// A prompt whose block i has the hash of number `first + i`.
struct HashedRequest {
  HashedRequest(std::uint64_t request, std::uint32_t num_tokens, std::uint64_t first) : tokens(num_tokens, 1) {
    for (std::uint32_t i = 0; i < num_tokens / kSmallBlock; ++i) {
      const OffloadKey key = small_key(first + i);
      hashes.insert(hashes.end(), key.hash.begin(), key.hash.end());
      blocks.push_back(BlockId{10 + i});
    }
    view.id = RequestId{request};
    view.tokens = tokens;
    view.num_prompt_tokens = view.num_computed_tokens = num_tokens;
    view.block_hashes = hashes;
  }
  HashedRequest(const HashedRequest&) = delete;
  HashedRequest& operator=(const HashedRequest&) = delete;

  std::vector<TokenId> tokens;
  std::vector<std::uint8_t> hashes;
  std::vector<BlockId> blocks;
  RequestView view;
};

// Puts the key into the tier, as if its block had been stored.
inline void add_key(OffloadConnector& connector, std::uint64_t number) {
  ASSERT_TRUE(connector.adopt(small_key(number)));
  connector.adopted(small_key(number), true);
}

// Returns whether a request loads a block that another request is loading, instead of waiting for it.
inline bool joins_loads(OffloadConnector& connector) {
  add_key(connector, 7000);
  const HashedRequest first(7001, 6, 7000), second(7002, 6, 7000);
  const std::span<const BlockId> blocks[1] = {first.blocks};
  EXPECT_EQ(connector.match(first.view, 0).num_tokens, kSmallBlock);
  connector.allocated(first.view, blocks, kSmallBlock);
  return connector.match(second.view, 0).num_tokens == kSmallBlock;
}

}  // namespace quire::test
