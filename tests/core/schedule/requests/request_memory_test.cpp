// Tests the memory reserved when a request is admitted, and the order of waiting requests.
#include <gtest/gtest.h>

#include "core/schedule/core_driver.h"
#include "core/schedule/requests/requests.h"

namespace quire::test {
namespace {

// The tests of steps without allocations do not show how much reserved memory is left.
TEST(RequestMemory, ReservesEightTokensBeyondTheLimitsDraftsAndLookahead) {
  CoreConfig config = sync_config();
  config.speculation = {.num_spec_tokens = 3, .num_lookahead_tokens = 2};
  config.prefix_cache.enable_prefix_caching = false;
  Context context(config, {});
  KvCacheManager kv(config.kv, {.max_model_len = config.scheduler.max_model_len, .enable_caching = false});
  RequestTable table(2);
  Requests requests(context, kv, table, nullptr);
  const Tokens prompt = CoreDriver::prompt(1, 10);
  const auto num_reserved = [&](std::uint64_t id, std::uint32_t max_tokens) {
    Request& request = requests.create(CoreDriver::request(id, prompt, max_tokens));
    requests.reserve_memory(request);
    return request.tokens.capacity();
  };
  EXPECT_GE(num_reserved(1, 20), 10U + 20U + 8U + 5U) << "the limit of the request applies";
  EXPECT_GE(num_reserved(2, 1000), config.scheduler.max_model_len + 8U + 5U) << "the limit of the model applies";
}

TEST(RequestOrder, ARequestDoesNotPrecedeItself) {
  Request request, later;
  request.name = later.name = "same";
  request.id = RequestId{1};
  later.id = RequestId{2};
  EXPECT_FALSE(precedes_in_queue(request, request));
  EXPECT_TRUE(precedes_in_queue(request, later));
  EXPECT_FALSE(precedes_in_queue(later, request));
}

}  // namespace
}  // namespace quire::test
