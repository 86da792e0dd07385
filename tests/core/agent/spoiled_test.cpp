// What is known of agents, with one private field spoiled: the next use notices.
#include <gtest/gtest.h>

#include "core/agent/agent.h"

namespace quire {
namespace {

TEST(SpoiledAgentDeathTest, OnlyAnIdleJobIsForgottenAndNoneThatIsUsedIsIdle) {
  JobTable jobs(1);
  Job& job = jobs.acquire("a");
  EXPECT_DEATH(
      {
        jobs.idle_.push_back(job);
        jobs.acquire("a");
      },
      "a job that is used is not idle");
  jobs.release(job);
  EXPECT_DEATH(
      {
        job.is_pinned = true;
        jobs.acquire("b");
      },
      "only an idle job is forgotten");
  EXPECT_DEATH(
      {
        job.num_requests = 1;
        jobs.acquire("b");
      },
      "only an idle job is forgotten");
}

TEST(SpoiledAgentDeathTest, AToolIsKnownByAGapAndToolsAreBounded) {
  ToolTimes tools(1);
  tools.learn("ls", 1.0);
  EXPECT_DEATH(
      {
        tools.tools_.begin()->second.num_gaps = 0;
        (void)tools.mean_s("ls");
      },
      "a tool is known by a gap");
  EXPECT_DEATH(
      {
        tools.tools_.try_emplace("cat");
        tools.learn("ps", 1.0);
      },
      "names from outside are bounded");
}

TEST(SpoiledAgentDeathTest, ListsAreWhatTheirJobsSay) {
  JobTable jobs(2);
  Job& job = jobs.acquire("a");
  PinList pins;
  pins.add({.request = RequestId{1}, .job = &job, .expiry = 1.0});
  jobs.check_invariants();
  pins.check_invariants();
  EXPECT_DEATH(
      {
        job.num_requests = 0;
        jobs.check_invariants();
      },
      "a job that no request names is idle");
  EXPECT_DEATH(
      {
        pins.next_expiry_ = 2.0;
        pins.check_invariants();
      },
      "the least expiry is kept");
}

}  // namespace
}  // namespace quire
