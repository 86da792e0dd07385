#pragma once
// Helpers for the tests of single behaviors.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/kv/kv_cache_manager.h"
#include "core/kv/kv_support.h"

namespace quire::test {

// Returns `count` different tokens.
inline std::string letters(std::size_t count) {
  std::string result;
  for (std::size_t i = 0; i < count; ++i) result += static_cast<char>('!' + i);
  return result;
}

class KvTraps : public testing::Test {
 protected:
  KvCacheManager& make(std::uint32_t num_blocks, std::vector<LayerKvSpec> specs, bool eagle = false) {
    options.use_eagle = eagle;
    manager = std::make_unique<KvCacheManager>(test::config_of(num_blocks, std::move(specs)), options);
    return *manager;
  }
  // Allocates slots for all tokens of a request after its lookup, in one step.
  std::uint32_t prefill(TestRequest& request, const KvHit& hit = {}) {
    const auto num_tokens = static_cast<std::uint32_t>(request.tokens.size());
    const std::uint32_t missing = manager->allocate_slots(
        request.view(), {.num_new_tokens = num_tokens - hit.num_tokens, .num_new_computed_tokens = hit.num_tokens}, hit);
    request.num_computed = missing == 0 ? num_tokens : 0;
    return missing;
  }
  // Caches the blocks of a text and frees them.
  void leave_cached(const std::string& text) {
    TestRequest request(text, options.hash_block_size);
    ASSERT_EQ(prefill(request), 0U);
    manager->free(request.blocks);
    manager->new_step_starts(0.0);
  }
  std::uint32_t hit_of(const std::string& text) {
    TestRequest request(text, options.hash_block_size);
    return manager->find_prefix(request.view()).num_tokens;
  }
  std::vector<std::uint32_t> queue() const { return values(manager->pool().free_queue().to_vector()); }

  KvCacheOptions options = test::options_of();
  std::unique_ptr<KvCacheManager> manager;
};

}  // namespace quire::test
