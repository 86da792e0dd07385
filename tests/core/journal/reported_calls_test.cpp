// Each member of Core that may change it has a value in CoreCall, and reports it and its answer to CoreSeams::calls once.
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/journal/call_bytes.h"
#include "quire/core.h"
#include "quire/core_calls.h"

namespace quire::test {
namespace {

std::string read(const char* path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Returns the names of Core's members that are not const, without the functions that create a core.
std::multiset<std::string> changing_members(const std::string& header) {
  const std::size_t begin = header.find("class QUIRE_API Core {");
  EXPECT_NE(begin, std::string::npos) << "include/quire/core.h is read from the root of the repository";
  const std::string body = std::regex_replace(header.substr(begin, header.find("\n};", begin) - begin), std::regex("//[^\n]*"), "");
  std::multiset<std::string> found;
  const std::regex member("[\\w>&*] (?:[*&] ?)?(\\w+)\\(([^;]*)\\);");
  const std::set<std::string> makers = {"create", "restore", "make", "Core"};
  for (std::sregex_iterator i(body.begin(), body.end(), member), end; i != end; ++i)
    if (!makers.contains((*i)[1])) found.insert((*i)[1]);
  return found;
}

// Calls `visit` with an empty call of each kind, in the order of CoreCall.
template <std::size_t kIndex = 0>
void visit_all_calls(const auto& visit) {
  visit(CoreCall(std::in_place_index<kIndex>));
  if constexpr (kIndex + 1 < std::variant_size_v<CoreCall>) visit_all_calls<kIndex + 1>(visit);
}

const char* name_of(const CoreCall& call) {
  return std::visit([](const auto& one) { return one.kName; }, call);
}

TEST(CoreCalls, ListEachMemberThatMayChangeACore) {
  std::multiset<std::string> listed;
  visit_all_calls([&](const CoreCall& call) { listed.insert(name_of(call)); });
  std::multiset<std::string> changing = changing_members(read("include/quire/core.h"));
  // watch() and end_watch() change only what a watcher sees. No decision depends on it, and no checkpoint contains it
  // (Watch.ChangesNoDecisionAndShowsWhatASnapshotReports), so a replay does not need these calls.
  for (const char* shown : {"watch", "end_watch"}) EXPECT_EQ(changing.erase(shown), 1U);
  EXPECT_GE(changing.size(), 17U) << "the header was read";
  EXPECT_EQ(listed, changing) << "each member that may change the core is in CoreCall (quire/core_call.h)";
}

// The kinds are in journals on disk. A new call gets the next number.
TEST(CoreCalls, KeepTheirKinds) {
  const std::vector<std::string> names = {"add",
                                          "continue_session",
                                          "fork",
                                          "schedule",
                                          "apply",
                                          "set_drafts",
                                          "set_drafts_in_plan",
                                          "finish",
                                          "reset_prefix_cache",
                                          "end_pins",
                                          "reset_connector_cache",
                                          "reset_encoder_cache",
                                          "set_pause_state",
                                          "make_stats",
                                          "set_swap_costs",
                                          "forget_blocks",
                                          "finish",
                                          "set_prefill_limits"};
  std::size_t kind = 0;
  visit_all_calls([&](const CoreCall& call) {
    ByteWriter out;
    write_call(out, call);
    EXPECT_EQ(out.bytes.front(), ++kind);
    if (kind <= names.size()) EXPECT_EQ(name_of(call), names[kind - 1]);
    ByteReader in(out.bytes);
    RecordedCall read;
    read.read(in);
    EXPECT_TRUE(in.at_end() && !in.failed()) << name_of(call);
    EXPECT_EQ(read.call().index(), call.index());
  });
  EXPECT_GE(kind, names.size());
}

// Values that no call has are errors, so that a damaged record is never played.
TEST(CoreCalls, RefuseValuesOutOfRange) {
  const auto is_read = [](std::vector<std::uint8_t> bytes) {
    ByteReader in(bytes);
    RecordedCall().read(in);
    return !in.failed() && in.at_end();
  };
  EXPECT_FALSE(is_read({0}));
  for (std::size_t kind = std::variant_size_v<CoreCall> + 1; kind < 256; ++kind)
    EXPECT_FALSE(is_read({static_cast<std::uint8_t>(kind)})) << kind;
  for (unsigned value = 0; value < 256; ++value) {
    const auto byte = static_cast<std::uint8_t>(value);
    EXPECT_EQ(is_read({13, byte}), value <= static_cast<unsigned>(PauseState::paused_all)) << value;
    std::vector<std::uint8_t> finish = {8, 1, byte}, finish_all = {17, 1, 1, byte};
    finish.resize(finish.size() + 9), finish_all.resize(finish_all.size() + 9);  // time and seed
    const bool is_end = value <= static_cast<unsigned>(RequestStatus::finished_repetition) && is_finished(RequestStatus{byte});
    EXPECT_EQ(is_read(finish), is_end) << value;
    EXPECT_EQ(is_read(finish_all), is_end) << value;
    std::vector<std::uint8_t> continued = {2, 1, byte};
    continued.resize(continued.size() + 9);
    if (value != 1) EXPECT_EQ(is_read(continued), value == 0) << value;
  }
}

// Collects the names of calls, and their answers.
class Names final : public CallSink {
 public:
  void on_call(const CoreCall& call) override { text += std::string(" ") + name_of(call); }
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

TEST(CoreCalls, AreReportedOnceWithTheirAnswer) {
  Names names;
  const auto core = Core::create(small_config(), {.calls = &names}).value();
  EXPECT_EQ(names.take(), "");
  const std::vector<TokenId> prompt(9, 7);
  ASSERT_TRUE(core->add({.id = RequestId{1}, .prompt = prompt, .resumable = true}).has_value());
  EXPECT_EQ(names.take(), " add 0");
  EXPECT_FALSE(core->add({.id = RequestId{1}, .prompt = prompt}).has_value());
  EXPECT_NE(names.take(), " add 0") << "a refused request has another answer";
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
  EXPECT_EQ(names.take(), " set_drafts 0 set_drafts_in_plan 0");
  ASSERT_TRUE(core->continue_session(RequestId{1}, nullptr).has_value());
  EXPECT_EQ(names.take(), " continue_session 0");
  core->forget_blocks(RequestId{1});
  EXPECT_EQ(names.take(), " forget_blocks 0");
  (void)core->reset_prefix_cache(true, true);
  EXPECT_EQ(names.take(), " reset_prefix_cache 0") << "resetting the connector too is no separate call";
  (void)core->reset_connector_cache();
  core->reset_encoder_cache();
  core->end_pins();
  EXPECT_EQ(names.take(), " reset_connector_cache 0 reset_encoder_cache 0 end_pins 0");
  core->set_pause_state(PauseState::paused_new);
  core->set_swap_costs({.out_bytes_per_s = 1.0});
  core->set_swap_costs({.out_bytes_per_s = 1.0});
  core->set_prefill_limits({});
  EXPECT_EQ(names.take(), " set_pause_state 0 set_swap_costs 0") << "unchanged costs and limits are no call";
  (void)core->make_stats();
  EXPECT_EQ(names.take(), " make_stats 1");
  const RequestId ids[] = {RequestId{1}, RequestId{99}};
  std::vector<RequestId> finished;
  core->finish(ids, RequestStatus::finished_aborted, finished);
  EXPECT_EQ(names.take(), " finish 1");
  core->finish(RequestId{2}, RequestStatus::finished_aborted);
  core->finish(RequestId{2}, RequestStatus::finished_aborted);
  EXPECT_EQ(names.take(), " finish 1 finish 0") << "retired, then unknown";
}

// random_run.h does not make these calls.
TEST(CoreCalls, ReadBackFinishAllSwapCostsAndPrefillLimits) {
  CoreCallWriter writer;
  const RequestId ids[] = {RequestId{1}, RequestId{99}};
  writer.sink().on_call(core_call::FinishAll{ids, RequestStatus::finished_aborted, {.now = 4.0}});
  writer.sink().on_call(core_call::SetSwapCosts{{.disk_out_bytes_per_s = 3.0, .disk_in_bytes_per_s = 4.0}});
  writer.sink().on_call(core_call::SetPrefillLimits{{.beside_decodes = 1}});
  const std::vector<std::uint8_t> bytes = writer.take();
  CoreCallReader reader(bytes);
  Names names;
  const auto core = Core::create(small_config(), {.calls = &names}).value();
  ASSERT_TRUE(core->add({.id = RequestId{1}, .prompt = std::vector<TokenId>{1, 2}}).has_value());
  names.take();
  while (reader.next().value()) reader.play(*core);
  EXPECT_EQ(names.take(), " finish 1 set_swap_costs 0 set_prefill_limits 0");
}

}  // namespace
}  // namespace quire::test
