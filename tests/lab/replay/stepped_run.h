#pragma once
// A core that a test steps by hand at known times while a journal records its calls: every time and count follows by hand.
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/schedule/core_driver.h"
#include "lab/replay/planted.h"
#include "quire/journal.h"
#include "runtime/tier/tier_support.h"

namespace quire::test {

// A core whose calls a journal records. Each sampling row gets its request's next token.
class SteppedRun {
 public:
  explicit SteppedRun(CoreConfig config = sync_config(), bool tokens = true)
      : journal_(CoreJournal::create({.folder = folder_.path(), .memory_bytes = 0, .tokens = tokens}, config, {}).value()),
        core_(Core::create(config, journal_->seams()).value()) {}

  void add(std::uint64_t id, const Tokens& prompt, std::uint32_t max_tokens, double now, double arrival_time) {
    NewRequest request = CoreDriver::request(id, prompt, max_tokens);
    request.arrival_time = arrival_time;
    ASSERT_TRUE(core_->add(request, {.now = now}).has_value());
  }
  void add(std::uint64_t id, std::uint32_t num_prompt_tokens, std::uint32_t max_tokens, double now) {
    add(id, CoreDriver::prompt(id, num_prompt_tokens), max_tokens, now, now);
  }
  void plan(double now) {
    const StepPlan& plan = core_->schedule({.now = now});
    std::vector<SampledToken> sampled;
    for (const ScheduledRequest& s : plan.scheduled)
      if (s.samples) sampled.push_back({s.id, next_token_++});
    open_.push_back({plan.step, sampled});
  }
  void apply(double now) {
    ASSERT_TRUE(core_->apply({.step = open_.front().first, .sampled = open_.front().second}, {.now = now}).has_value());
    open_.pop_front();
  }
  void step(double planned_s, double applied_s) {
    plan(planned_s);
    apply(applied_s);
  }
  Core& core() { return *core_; }
  // Ends the recording.
  std::string path() {
    core_.reset();
    journal_.reset();
    return only_file(folder_.path());
  }
  [[nodiscard]] std::string new_path(const std::string& name) const { return folder_.path() + "/" + name; }

 private:
  TempFolder folder_;
  std::unique_ptr<CoreJournal> journal_;
  std::unique_ptr<Core> core_;
  std::deque<std::pair<StepId, std::vector<SampledToken>>> open_;
  TokenId next_token_ = 50;
};

// Three requests. The second is aborted before its first token.
inline void play_three(SteppedRun& run, bool all_have_arrival_times) {
  run.add(1, CoreDriver::prompt(1, 8), 3, 100.0, 90.5);
  run.step(100.0, 101.0);
  run.add(2, CoreDriver::prompt(2, 5), 3, 101.0, all_have_arrival_times ? 91.0 : 0.0);
  run.core().finish(RequestId{2}, RequestStatus::finished_aborted, {.now = 101.5});
  run.step(102.0, 104.0);
  run.add(3, CoreDriver::prompt(3, 6), 2, 105.0, 96.5);
  run.step(105.0, 108.0);
  run.step(108.0, 109.0);
}

}  // namespace quire::test
