#pragma once
// A run of the core. A seed decides each call, result and seam answer, and calls and answers are recorded.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <string>
#include <vector>

#include "core/core_world.h"
#include "quire/core_calls.h"
#include "quire/hash_function.h"
#include "quire/seam_record.h"

namespace quire::test {

inline std::string text_of(const StepPlan& plan) {
  std::string text = fmt::format("step {}:", plan.step.value);
  for (const Slot slot : plan.released) text += fmt::format(" -{}", slot.value);
  for (const AdmittedRequest& a : plan.admitted) text += fmt::format(" +{}@{}({})", a.id.value, a.slot.value, fmt::join(a.tokens, ","));
  for (const BlockTableDelta& d : plan.table_deltas) {
    text += fmt::format(" {}/{}", d.slot.value, d.group);
    for (const BlockId block : d.blocks) text += fmt::format(",{}", block.value);
  }
  for (const ScheduledRequest& s : plan.scheduled)
    text +=
        fmt::format(" r{}[{}+{}]{}d{}", s.id.value, s.num_computed_tokens, s.num_tokens, s.samples ? "s" : "", fmt::join(s.drafts, ","));
  return text + "\n";
}

// A hash function that returns a sum instead of a digest.
class SumNames final : public HashFunction {
 public:
  BlockHash hash(const BlockHash* parent, const HashInput& input) override {
    BlockHash name;
    name.bytes[0] = static_cast<std::uint8_t>(parent == nullptr ? 1 : parent->bytes[0] + 1);
    for (const TokenId token : input.tokens) name.bytes[1] = static_cast<std::uint8_t>(name.bytes[1] * 3 + token);
    return name;
  }
};

class OddTools final : public ToolNamer {
 public:
  std::string tool_of(const RequestView& request) override { return request.tokens.back() == 0 ? "" : "grep"; }
};

class OddEncoderCache final : public EncoderConnector {
 public:
  bool has(std::string_view identifier) override { return identifier == "a"; }
  void allocated(const RequestView& /*request*/, std::uint32_t /*index*/) override {}
};

// Makes random calls and records them.
class RecordedRun final : public CoreWorld {
 public:
  explicit RecordedRun(std::uint64_t seed, RunOf kind = RunOf::first_rules)
      : CoreWorld(seed, 1000, kind), answers_(seed ^ 0xABCDU, 0), connector_(answers_), grammar_(answers_), side_(is_wide_) {
    CoreSeams seams;
    if (!config.mamba_align && chance(in_, 2)) seams.connector = &connector_;
    if (chance(in_, 2)) seams.grammar = &grammar_;
    if (chance(in_, 2) && !is_newer_) seams.encoder_connector = &encoders_;
    if (chance(in_, 2)) seams.tools = &tools_;
    if (chance(in_, 2)) seams.hash = &names_;
    has_connector_ = seams.connector != nullptr;
    recorder_ = std::make_unique<SeamRecorder>(seams);
    CoreSeams recorded = recorder_->seams();
    recorded.events = &side_.told;
    recorded.calls = &calls_.sink();
    side_.core = Core::create(config, recorded).value();
    sides_ = {&side_};
    for (std::uint32_t i = 1; !in_.empty(); in_.count(), ++i) {
      one_call();
      if (i % 8 == 0) tell_state(side_);
      if (i % 100 == 0) digests.push_back(static_cast<std::uint32_t>(side_.told.digest() ^ (side_.told.digest() >> 32U)));
    }
  }

  std::string plans;
  std::vector<std::uint32_t> digests;  // of everything reported, with events, after each 100 calls
  std::uint32_t num_steps = 0;
  [[nodiscard]] CoreCounters counters() const { return side_.core->counters(); }
  std::vector<std::uint8_t> calls() { return calls_.take(); }
  SeamRecord answers() { return recorder_->take(); }

 private:
  void on_plan(const StepPlan& plan) override {
    plans += text_of(plan);
    ++num_steps;
  }

  SeedSource answers_;
  RandomConnector<SeedSource> connector_;
  RandomGrammar<SeedSource> grammar_;
  OddEncoderCache encoders_;
  OddTools tools_;
  SumNames names_;
  std::unique_ptr<SeamRecorder> recorder_;
  CoreCallWriter calls_;
  Side side_;
};

}  // namespace quire::test
