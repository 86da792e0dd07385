// Tests which forks are refused: bad input, limits, and requests that cannot be shared.
#include <gtest/gtest.h>

#include "core/schedule/core_driver.h"
#include "core/schedule/requests/forking.h"

namespace quire::test {
namespace {

TEST(Forks, RefuseBadInput) {
  CoreDriver d(sync_config());
  d.add(1, 6, 10);
  d.add(2, 6, 1);
  d.step();
  d.step();
  const RequestId child{9};
  expect_refused(d, 7, {.id = child}, {"parent", ErrorCode::not_found});
  expect_refused(d, 1, {.id = RequestId{1}}, {"id", ErrorCode::invalid_argument});
  expect_refused(d, 1, {.id = child, .num_tokens = 5}, {"num_tokens", ErrorCode::invalid_argument});
  expect_refused(d, 1, {.id = child, .num_tokens = 9}, {"num_tokens", ErrorCode::invalid_argument});
  expect_refused(d, 1, {.id = child, .max_tokens = 2}, {"max_tokens", ErrorCode::invalid_argument});
  expect_refused(d, 1, {.id = child, .max_tokens = 0}, {"max_tokens", ErrorCode::invalid_argument});
  EXPECT_TRUE(fork(d, 1, {.id = child, .max_tokens = 3}).has_value());
}

TEST(Forks, RefuseAFinishedParent) {
  CoreConfig config = async_config();
  CoreDriver d(config);
  d.add(1, 6, 10);
  d.plan();
  d.core->finish(RequestId{1}, RequestStatus::finished_aborted);
  expect_refused(d, 1, {.id = RequestId{2}}, {"parent", ErrorCode::invalid_argument});
  d.apply();
}

TEST(Forks, LimitTheSizeOfAFamily) {
  CoreConfig config = sync_config();
  config.limits.max_fork_family = 4;
  CoreDriver d(config);
  d.add(1, 6, 10);
  d.step();
  for (std::uint64_t child = 2; child < 5; ++child) must_fork(d, child - 1, child);  // forks of forks
  expect_refused(d, 4, {.id = RequestId{5}}, {"limits.max_fork_family", ErrorCode::overloaded});
  d.core->finish(RequestId{2}, RequestStatus::finished_aborted);
  must_fork(d, 4, 5);
  while (d.core->has_work()) d.step();
}

TEST(Forks, RefuseChildrenWhenAFamilyHasOneMember) {
  CoreConfig config = sync_config();
  config.limits.max_fork_family = 1;
  CoreDriver d(config);
  d.add(1, 6, 10);
  d.step();
  expect_refused(d, 1, {.id = RequestId{2}}, {"limits.max_fork_family", ErrorCode::overloaded});
}

TEST(Forks, RefuseAForkWhenTheWaitingQueueIsFull) {
  CoreConfig config = sync_config();
  config.scheduler.max_num_waiting = 1;
  CoreDriver d(config);
  d.add(1, 6, 10);
  d.step();
  must_fork(d, 1, 2);
  expect_refused(d, 1, {.id = RequestId{3}}, {"max_num_waiting", ErrorCode::overloaded});
}

TEST(Forks, RefuseAPoolingParent) {
  CoreDriver d(sync_config());
  const Tokens prompt = CoreDriver::prompt(1, 6);
  NewRequest pooling = CoreDriver::request(1, prompt, 1);
  pooling.pooling = true;
  d.add(pooling);
  expect_refused(d, 1, {.id = RequestId{2}}, {"parent", ErrorCode::unsupported});
}

}  // namespace
}  // namespace quire::test
