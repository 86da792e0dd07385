// Whoever changes a core is written down: each member of Core that may change it tells CoreSeams::calls, once, before and after.
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "quire/core.h"
#include "quire/core_calls.h"

namespace quire::test {
namespace {

std::string read(const char* path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// The members of a class that end so, by name; but for those that make one.
std::multiset<std::string> members(const std::string& header, const std::string& name, const std::string& ending) {
  const std::size_t begin = header.find("class " + name + " {");
  EXPECT_NE(begin, std::string::npos) << name << ": include/quire/core.h is read from the root of the repository";
  std::string body = std::regex_replace(header.substr(begin, header.find("\n};", begin) - begin), std::regex("//[^\n]*"), "");
  body = std::regex_replace(body, std::regex("\\) \\{\\}"), ");");
  std::multiset<std::string> found;
  const std::regex member("[\\w>&*] (?:[*&] ?)?(\\w+)\\(([^;]*)\\)" + ending + ";");
  const std::set<std::string> makers = {"create", "restore", "make", "Core"};
  for (std::sregex_iterator i(body.begin(), body.end(), member), end; i != end; ++i)
    if (!makers.contains((*i)[1])) found.insert((*i)[1]);
  return found;
}

TEST(ToldCalls, AreAllThatMayChangeACore) {
  const std::string header = read("include/quire/core.h");
  std::multiset<std::string> told = members(header, "CallSink", " = 0");
  for (const char* answer : {"planned", "applied", "answered"}) EXPECT_EQ(told.erase(answer), 1U);
  std::multiset<std::string> changing = members(header, "QUIRE_API Core", "");
  // These change what a watcher is shown, and nothing that a decision depends on or a checkpoint has: a core that is watched decides as one
  // that is not (Watch.ChangesNoDecisionAndTellsWhatASnapshotTells), so a replay needs not know of it.
  for (const char* shown : {"watch", "end_watch"}) EXPECT_EQ(changing.erase(shown), 1U);
  EXPECT_EQ(changing.size(), 17U) << "the header was read";
  EXPECT_EQ(told, changing) << "a member that may change the core is told of by CallSink, and src/core/schedule/told_calls.cpp";
}

// Writes the names of what it is told.
class Names final : public CallSink {
 public:
  void add(const NewRequest& /*request*/, const StepInput& /*input*/) override { text += " add"; }
  void continue_session(RequestId /*id*/, const SessionInput* /*input*/, const StepInput& /*now*/) override { text += " continue"; }
  void fork(RequestId /*parent*/, const ForkRequest& /*child*/, const StepInput& /*input*/) override { text += " fork"; }
  void schedule(const StepInput& /*input*/) override { text += " schedule"; }
  void apply(const StepResult& /*result*/, const StepInput& /*input*/) override { text += " apply"; }
  void set_drafts(std::span<const Draft> /*drafts*/) override { text += " drafts"; }
  void set_drafts_in_plan(std::span<const Draft> /*drafts*/) override { text += " drafts_in_plan"; }
  void finish(RequestId /*id*/, RequestStatus /*status*/, const StepInput& /*input*/) override { text += " finish"; }
  void finish(std::span<const RequestId> /*ids*/, RequestStatus /*status*/, const StepInput& /*input*/) override { text += " finish_all"; }
  void forget_blocks(RequestId /*id*/) override { text += " forget"; }
  void reset_prefix_cache(bool /*preempt*/, bool /*connector*/, const StepInput& /*input*/) override { text += " reset"; }
  void end_pins() override { text += " end_pins"; }
  void reset_connector_cache() override { text += " reset_connector"; }
  void reset_encoder_cache() override { text += " reset_encoder"; }
  void set_swap_costs(const SwapCosts& /*costs*/) override { text += " costs"; }
  void set_pause_state(PauseState /*state*/) override { text += " pause"; }
  void make_stats() override { text += " stats"; }
  void planned(const StepPlan& plan) override { text += " plan" + std::to_string(plan.step.value); }
  void applied(const StepOutcome* outcome) override { text += outcome == nullptr ? " refused" : " outcome"; }
  void answered(std::uint64_t answer) override { text += " " + std::to_string(answer); }

  std::string take() { return std::exchange(text, {}); }
  std::string text;
};

CoreConfig small_config() {
  CoreConfig config;
  config.block_size = 4;
  FullAttentionSpec spec;
  spec.block_size = 4;
  config.scheduler.max_model_len = 64;
  config.scheduler.async_scheduling = false;
  config.kv = {.num_blocks = 16, .groups = {{.layer_names = {"layer"}, .spec = spec, .layer_specs = {}}}, .tensors = {}};
  return config;
}

TEST(ToldCalls, ComeOnceEachWithTheirAnswer) {
  Names names;
  const auto core = Core::create(small_config(), {.calls = &names}).value();
  EXPECT_EQ(names.take(), "");
  const std::vector<TokenId> prompt(9, 7);
  ASSERT_TRUE(core->add({.id = RequestId{1}, .prompt = prompt, .resumable = true}).has_value());
  EXPECT_EQ(names.take(), " add 0");
  EXPECT_FALSE(core->add({.id = RequestId{1}, .prompt = prompt}).has_value());
  EXPECT_NE(names.take(), " add 0") << "a refused one answers something else";
  core->schedule();
  EXPECT_EQ(names.take(), " schedule plan0");
  EXPECT_FALSE(core->apply({.step = StepId{7}}).has_value());
  EXPECT_EQ(names.take(), " apply refused");
  const SampledToken sampled[] = {{RequestId{1}, 3}};
  ASSERT_TRUE(core->apply({.step = StepId{0}, .sampled = sampled}).has_value());
  EXPECT_EQ(names.take(), " apply outcome");
  ASSERT_TRUE(core->fork(RequestId{1}, {.id = RequestId{2}}).has_value());
  EXPECT_EQ(names.take(), " fork 0");
  core->set_drafts({});
  core->set_drafts_in_plan({});
  EXPECT_EQ(names.take(), " drafts 0 drafts_in_plan 0");
  ASSERT_TRUE(core->continue_session(RequestId{1}, nullptr).has_value());
  EXPECT_EQ(names.take(), " continue 0");
  core->forget_blocks(RequestId{1});
  EXPECT_EQ(names.take(), " forget 0");
  (void)core->reset_prefix_cache(true, true);
  EXPECT_EQ(names.take(), " reset 0") << "what it resets besides is no other call";
  (void)core->reset_connector_cache();
  core->reset_encoder_cache();
  core->end_pins();
  EXPECT_EQ(names.take(), " reset_connector 0 reset_encoder 0 end_pins 0");
  core->set_pause_state(PauseState::paused_new);
  core->set_swap_costs({.out_bytes_per_s = 1.0});
  core->set_swap_costs({.out_bytes_per_s = 1.0});
  EXPECT_EQ(names.take(), " pause 0 costs 0") << "costs that stay are no call";
  (void)core->make_stats();
  EXPECT_EQ(names.take(), " stats 1");
  const RequestId ids[] = {RequestId{1}, RequestId{99}};
  std::vector<RequestId> finished;
  core->finish(ids, RequestStatus::finished_aborted, finished);
  EXPECT_EQ(names.take(), " finish_all 1");
  core->finish(RequestId{2}, RequestStatus::finished_aborted);
  core->finish(RequestId{2}, RequestStatus::finished_aborted);
  EXPECT_EQ(names.take(), " finish 1 finish 0") << "retired, then unknown";
}

// Those that random_run.h does not make.
TEST(ToldCalls, OfSeveralEndsAtOnceAreReadBack) {
  CoreCallWriter writer;
  const RequestId ids[] = {RequestId{1}, RequestId{99}};
  writer.sink().finish(ids, RequestStatus::finished_aborted, {.now = 4.0});
  writer.sink().set_swap_costs({.far_out_bytes_per_s = 3.0, .far_in_bytes_per_s = 4.0});
  const std::vector<std::uint8_t> bytes = writer.take();
  CoreCallReader reader(bytes);
  Names names;
  const auto core = Core::create(small_config(), {.calls = &names}).value();
  ASSERT_TRUE(core->add({.id = RequestId{1}, .prompt = std::vector<TokenId>{1, 2}}).has_value());
  names.take();
  while (reader.next().value()) reader.play(*core);
  EXPECT_EQ(names.take(), " finish_all 1 costs 0");
}

}  // namespace
}  // namespace quire::test
