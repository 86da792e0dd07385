// Rules of use among what CONTINUUM knows of agents: whoever breaks one stops the program with a message. One test per class.
#include <gtest/gtest.h>

#include "core/agent/agent.h"

namespace quire {
namespace {

TEST(AgentInvariantDeathTest, AJobIsReleasedAsOftenAsItIsAcquiredAndNotWhileItIsPinned) {
  JobTable jobs(2);
  Job& job = jobs.acquire("a");
  EXPECT_DEATH(
      {
        job.is_pinned = true;
        jobs.release(job);
      },
      "a pin's request names the job");
  jobs.release(job);
  EXPECT_DEATH(jobs.release(job), "released by a request of it");
}

TEST(AgentInvariantDeathTest, AJobHasOnePinAtMost) {
  JobTable jobs(2);
  Job& job = jobs.acquire("a");
  PinList pins;
  EXPECT_DEATH(pins.add({}), "one pin per job");
  pins.add({.request = RequestId{1}, .job = &job, .expiry = 1.0});
  EXPECT_DEATH(pins.add({.request = RequestId{2}, .job = &job, .expiry = 1.0}), "one pin per job");
  EXPECT_DEATH((void)PinList().take(job), "a pinned job has a pin");
  EXPECT_DEATH(
      {
        job.is_pinned = false;
        (void)pins.take_oldest();
      },
      "a pin's job knows of it");
}

TEST(AgentInvariantDeathTest, ATurnIsARequestOfItsJob) {
  Agent agent({});
  Job unused;
  EXPECT_DEATH(agent.arrived(unused, 1.0), "a turn that arrives is a request of its job");
  EXPECT_DEATH((void)agent.ended(unused, "ls", 1.0), "a turn that ends is a request of its job");
}

TEST(AgentInvariantDeathTest, TimesOfOneToolAtLeastAreKept) {
  ToolTimes tools(0);
  EXPECT_DEATH(tools.learn("ls", 1.0), "room for one name at least");
}

}  // namespace
}  // namespace quire
