// What is reserved when a request is admitted, and the order of requests that wait.
#include <gtest/gtest.h>

#include "core/schedule/core_driver.h"
#include "core/schedule/requests/requests.h"

namespace quire {
namespace {

using test::CoreDriver;

// A test of steps that allocate nothing does not see how much of it is left.
TEST(RequestMemory, ThereIsRoomForEightTokensBehindTheLimitsDraftsAndLookahead) {
  CoreConfig config = test::sync_config();
  config.speculation = {.num_spec_tokens = 3, .num_lookahead_tokens = 2};
  config.prefix_cache.enable_prefix_caching = false;
  Context context(config, {});
  KvCacheManager kv(config.kv, {.max_model_len = config.scheduler.max_model_len, .enable_caching = false});
  RequestTable table(2);
  Requests requests(context, kv, table, nullptr);
  const test::Tokens prompt = CoreDriver::prompt(1, 10);
  const auto num_reserved = [&](std::uint64_t id, std::uint32_t max_tokens) {
    Request& request = requests.create(CoreDriver::request(id, prompt, max_tokens));
    requests.reserve_memory(request);
    return request.tokens.capacity();
  };
  EXPECT_GE(num_reserved(1, 20), 10U + 20U + 8U + 5U) << "by its own limit";
  EXPECT_GE(num_reserved(2, 1000), config.scheduler.max_model_len + 8U + 5U) << "by that of all";
}

TEST(RequestOrder, NobodyGoesBeforeHimself) {
  Request request, later;
  request.name = later.name = "same";
  request.id = RequestId{1};
  later.id = RequestId{2};
  EXPECT_FALSE(goes_before(request, request));
  EXPECT_TRUE(goes_before(request, later));
  EXPECT_FALSE(goes_before(later, request));
}

}  // namespace
}  // namespace quire
