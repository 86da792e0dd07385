// Death tests of the preconditions of CONTINUUM's agent classes. A violation stops the program with a message.
#include <gtest/gtest.h>

#include "core/agent/agent.h"

namespace quire::test {
namespace {

TEST(AgentInvariantDeathTest, AJobIsReleasedAsOftenAsItIsAcquiredAndNotWhileItIsPinned) {
  JobTable jobs(2);
  Job& job = jobs.acquire("a");
  EXPECT_DEATH(
      {
        job.is_pinned = true;
        jobs.release(job);
      },
      "a job without requests has no pin");
  jobs.release(job);
  EXPECT_DEATH(jobs.release(job), "a job is released by one of its requests");
}

TEST(AgentInvariantDeathTest, AJobHasOnePinAtMost) {
  JobTable jobs(2);
  Job& job = jobs.acquire("a");
  PinList pins;
  EXPECT_DEATH(pins.add({}), "a job has at most one pin");
  pins.add({.request = RequestId{1}, .job = &job, .expiry = 1.0});
  EXPECT_DEATH(pins.add({.request = RequestId{2}, .job = &job, .expiry = 1.0}), "a job has at most one pin");
  EXPECT_DEATH((void)PinList().take(job), "a pinned job has a pin in the list");
  EXPECT_DEATH(
      {
        job.is_pinned = false;
        (void)pins.take_oldest();
      },
      "the job of a pin is marked as pinned");
}

TEST(AgentInvariantDeathTest, ATurnIsARequestOfItsJob) {
  Agent agent({});
  Job unused;
  EXPECT_DEATH(agent.arrived(unused, 1.0), "the job of an arriving turn has a request");
  EXPECT_DEATH((void)agent.ended(unused, "ls", 1.0), "the job of an ended turn has a request");
}

TEST(AgentInvariantDeathTest, ATableHasRoomForAtLeastOneTool) {
  ToolTimes tools(0);
  EXPECT_DEATH(tools.learn("ls", 1.0), "the table has room for at least one tool");
}

}  // namespace
}  // namespace quire::test
