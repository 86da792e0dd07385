// Tests jobs, tools and pins, and compares each with a naive model under random calls.
#include "core/agent/agent.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/random.h"

namespace quire::test {
namespace {

TEST(ToolTimes, KeepsTheMeanOfAllGapsPerName) {
  ToolTimes tools(8);
  EXPECT_EQ(tools.mean_s("ls"), std::nullopt);
  tools.learn("ls", 1.0);
  tools.learn("make", 30.0);
  tools.learn("ls", 2.0);
  EXPECT_EQ(tools.mean_s("ls"), 1.5);
  EXPECT_EQ(tools.mean_s("make"), 30.0);
}

TEST(ToolTimes, ForgetsTheLeastRecentlyLearnedTool) {
  ToolTimes tools(2);
  tools.learn("ls", 1.0);
  tools.learn("cat", 1.0);
  tools.learn("ls", 1.0);
  tools.learn("make", 1.0);
  EXPECT_EQ(tools.size(), 2U);
  EXPECT_FALSE(tools.mean_s("cat").has_value());
  EXPECT_TRUE(tools.mean_s("ls").has_value() && tools.mean_s("make").has_value());
}

TEST(ToolTimes, MatchesANaiveList) {
  Random random(1);
  ToolTimes tools(5);
  std::vector<std::pair<std::string, std::vector<double>>> naive;  // the least recently learned tool is first
  for (int i = 0; i < 20000; ++i) {
    const std::string name = fmt::format("tool{}", random.below(9));
    const auto known = std::ranges::find(naive, name, &std::pair<std::string, std::vector<double>>::first);
    if (random.chance(0.5)) {
      std::pair<std::string, std::vector<double>> tool{name, {}};
      if (known != naive.end()) {
        tool = *known;
        naive.erase(known);
      } else if (naive.size() == 5) {
        naive.erase(naive.begin());
      }
      tool.second.push_back(random.unit());
      tools.learn(name, tool.second.back());
      naive.push_back(tool);
    } else if (known == naive.end()) {
      ASSERT_EQ(tools.mean_s(name), std::nullopt);
    } else {
      double sum = 0.0;
      for (const double gap : known->second) sum += gap;
      ASSERT_EQ(tools.mean_s(name), sum / static_cast<double>(known->second.size()));
    }
    tools.check_invariants();
  }
}

TEST(JobTable, RemembersAJobBetweenTurnsAndForgetsTheLeastRecentlyUsed) {
  JobTable jobs(2);
  Job& a = jobs.acquire("a");
  a.first_entry[0] = 7.0;
  jobs.release(a);
  jobs.release(jobs.acquire("b"));
  EXPECT_EQ(jobs.acquire("a").first_entry[0], 7.0);
  jobs.acquire("c");
  EXPECT_EQ(jobs.find("b"), nullptr) << "a is in use";
  EXPECT_EQ(jobs.size(), 2U);
}

TEST(JobTable, StaysWithinItsBoundAfterAMillionNames) {
  JobTable jobs(100);
  for (int i = 0; i < 1'000'000; ++i) jobs.release(jobs.acquire(std::to_string(i)));
  EXPECT_EQ(jobs.size(), 100U);
}

TEST(JobTable, MatchesANaiveList) {
  Random random(2);
  constexpr std::size_t kMax = 6;
  JobTable jobs(kMax);
  struct Known {
    std::string name;
    int num_requests;
  };
  std::vector<Known> naive;  // idle jobs in order of their last use, the oldest first
  std::vector<Job*> in_use;
  for (int i = 0; i < 50000; ++i) {
    if (in_use.size() < 9 && random.chance(0.5)) {
      const std::string name = fmt::format("job{}", random.below(15));
      auto known = std::ranges::find(naive, name, &Known::name);
      if (known == naive.end()) {
        const auto idle = std::ranges::find(naive, 0, &Known::num_requests);
        if (naive.size() >= kMax && idle != naive.end()) naive.erase(idle);
        naive.push_back({name, 0});
        known = naive.end() - 1;
      }
      ++known->num_requests;
      in_use.push_back(&jobs.acquire(name));
      ASSERT_EQ(*in_use.back()->name, name);
    } else if (!in_use.empty()) {
      const auto place = in_use.begin() + static_cast<std::ptrdiff_t>(random.below(in_use.size()));
      const auto known = std::ranges::find(naive, *(*place)->name, &Known::name);
      jobs.release(**place);
      in_use.erase(place);
      if (--known->num_requests == 0) {
        const Known now_idle = *known;
        const bool over = naive.size() > kMax;
        naive.erase(known);
        if (!over) naive.push_back(now_idle);
      }
    }
    ASSERT_EQ(jobs.size(), naive.size());
    jobs.check_invariants();
    for (const Known& known : naive)
      ASSERT_TRUE(jobs.find(known.name) != nullptr &&
                  jobs.find(known.name)->num_requests == static_cast<std::uint32_t>(known.num_requests));
  }
}

TEST(PinList, MatchesANaiveList) {
  Random random(3);
  JobTable jobs(100);
  std::vector<Job*> all;
  for (int i = 0; i < 12; ++i) all.push_back(&jobs.acquire(std::to_string(i)));
  PinList pins;
  std::vector<Pin> naive;
  double now = 0.0;
  const auto expect = [&](const std::optional<Pin>& taken, std::vector<Pin>::iterator expected) {
    ASSERT_EQ(taken.has_value(), expected != naive.end());
    if (!taken) return;
    ASSERT_EQ(taken->request, expected->request);
    ASSERT_FALSE(taken->job->is_pinned);
    naive.erase(expected);
  };
  for (std::uint64_t i = 0; i < 50000; ++i) {
    now += random.unit();
    Job& job = *all[random.below(all.size())];
    switch (random.below(4)) {
      case 0:
        if (job.is_pinned) break;
        naive.push_back({RequestId{i}, &job, now + static_cast<double>(random.below(20))});
        pins.add(naive.back());
        break;
      case 1:
        expect(pins.take(job), std::ranges::find(naive, &job, &Pin::job));
        break;
      case 2:
        expect(pins.take_expired(now), std::ranges::find_if(naive, [now](const Pin& pin) { return now >= pin.expiry; }));
        break;
      default:
        if (random.chance(0.8)) break;
        expect(pins.take_oldest(), std::ranges::min_element(naive, {}, &Pin::expiry));
    }
    ASSERT_EQ(pins.all().size(), naive.size());
    pins.check_invariants();
    const auto least = std::ranges::min_element(naive, {}, &Pin::expiry);
    ASSERT_EQ(pins.next_expiry(), least == naive.end() ? std::nullopt : std::optional(least->expiry));
  }
}

TEST(Agent, LearnsAGapOnlyBetweenAnEndWithAToolAndTheNextArrival) {
  Agent agent({});
  Job& job = agent.jobs.acquire("job");
  agent.arrived(job, 1.0);
  agent.arrived(job, 2.0);  // two turns at the same time have no gap
  EXPECT_EQ(agent.tools.size(), 0U);
  agent.ended(job, "", 3.0);
  agent.arrived(job, 4.0);  // the last turn ended without a tool
  EXPECT_EQ(agent.tools.size(), 0U);
  agent.ended(job, "ls", 5.0);
  agent.ended(job, "cat", 6.0);
  agent.arrived(job, 6.5);
  EXPECT_EQ(agent.tools.mean_s("cat"), 0.5);
  EXPECT_EQ(agent.tools.mean_s("ls"), std::nullopt) << "only the last end counts";
}

TEST(Agent, PinsBlocksForAToolThatWasNeverSeen) {
  Agent agent({.pin_s = 2.0, .longest_tool_s = 0.25});
  Job& job = agent.jobs.acquire("a");
  EXPECT_EQ(agent.ended(job, "ls", 1.0), 2.0);
}

TEST(Agent, KeepsBlocksForAToolUnlessItTakesTooLongInTheMean) {
  Agent agent({});
  Job& job = agent.jobs.acquire("job");
  EXPECT_EQ(agent.ended(job, "", 0.0), 0.0) << "a turn without a tool gets no pin";
  EXPECT_EQ(agent.ended(job, "make", 0.0), 2.0) << "the tool was never seen";
  agent.arrived(job, 2.0);
  EXPECT_EQ(agent.ended(job, "make", 10.0), 2.0) << "a mean of 2.0 s is not above the limit";
  agent.arrived(job, 12.1);
  EXPECT_EQ(agent.ended(job, "make", 20.0), 0.0);
  EXPECT_EQ(agent.ended(agent.jobs.acquire("other"), "make", 20.0), 0.0) << "tool times are shared by all jobs";
}

}  // namespace
}  // namespace quire::test
