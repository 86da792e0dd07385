#pragma once
// A core's calls as bytes, each as its kind and its fields (call_fields.h). Under the writer of calls and the recorder of journals, which
// the core tells on its thread, in the middle of a call: it copies, keeps no views, and calls nothing back.
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "core/journal/byte_form.h"
#include "core/journal/call_fields.h"
#include "core/journal/call_kind.h"
#include "quire/core.h"

namespace quire {

// Writes the fields that it is called with.
class WriteForm {
 public:
  explicit WriteForm(ByteWriter& to) : out(&to) {}
  template <class... Fields>
  void operator()(const Fields&... values) {
    (put(values), ...);
  }

  ByteWriter* out;

 private:
  template <class Value>
  void put(const Value& value) {
    if constexpr (std::is_arithmetic_v<Value> || std::is_enum_v<Value>)
      out->value(value);
    else
      put_fields(value);
  }
  template <class Tag, class Rep>
  void put(const Id<Tag, Rep>& id) {
    out->number(id.value);
  }
  template <class Value>
  void put(const std::optional<Value>& value) {
    put(value.has_value());
    if (value) put(*value);
  }
  template <class Value>
  void put(const std::span<const Value>& values) {
    out->number(values.size());
    for (const Value& value : values) put(value);
  }
  void put(const std::span<const std::byte>& bytes) { out->text({reinterpret_cast<const char*>(bytes.data()), bytes.size()}); }
  void put(const std::span<const std::uint8_t>& bytes) { put(std::as_bytes(bytes)); }
  void put(const std::string_view& text) { out->text(text); }
  void put(const std::string& text) { out->text(text); }
  void put(const RequestTags* const& tags) {
    put(tags != nullptr);
    if (tags == nullptr) return;
    (*this)(tags->job, tags->is_last_step, tags->tool, tags->tenant);
    out->number(tags->hints.size());
    for (const auto& [name, value] : tags->hints) (*this)(name, value);
  }
  void put(const MultimodalFeature& feature) {
    const PlaceholderRange& range = feature.position;
    (*this)(feature.identifier, range.offset(), range.length());
    // Only a range with a mask tells its whole sum where it is asked up to 0.
    const bool has_mask = range.length() > 0 && (range.num_embeds() != range.length() || range.embeds_in_range(0, 0).second != 0);
    put(has_mask);
    for (std::int64_t i = 0; has_mask && i < range.length(); ++i) {
      const auto [first, second] = range.embeds_in_range(i, i + 1);
      put(second > first);
    }
  }
  // A copy, since the list of fields is for readers too.
  template <class Value>
  void put_fields(Value value) {
    fields(*this, value);
  }
};

// It copies what it is told and keeps no views.
class CallBytes : public CallSink {
 public:
  void add(const NewRequest& request, const StepInput& input) override { write(CallKind::add, request, input); }
  void continue_session(RequestId id, const SessionInput* input, const StepInput& now) override {
    write(CallKind::continue_session, id, input != nullptr);
    if (input != nullptr) form_(*input);
    form_(now);
  }
  void fork(RequestId parent, const ForkRequest& child, const StepInput& input) override { write(CallKind::fork, parent, child, input); }
  void schedule(const StepInput& input) override { write(CallKind::schedule, input); }
  void apply(const StepResult& result, const StepInput& input) override { write(CallKind::apply, result, input); }
  void set_drafts(std::span<const Draft> drafts) override { write(CallKind::set_drafts, drafts); }
  void set_drafts_in_plan(std::span<const Draft> drafts) override { write(CallKind::set_drafts_in_plan, drafts); }
  void finish(RequestId id, RequestStatus status, const StepInput& input) override { write(CallKind::finish, id, status, input); }
  void finish(std::span<const RequestId> ids, RequestStatus status, const StepInput& input) override {
    write(CallKind::finish_all, ids, status, input);
  }
  void forget_blocks(RequestId id) override { write(CallKind::forget_blocks, id); }
  void reset_prefix_cache(bool preempt_running, bool reset_connector, const StepInput& input) override {
    write(CallKind::reset_prefix_cache, preempt_running, reset_connector, input);
  }
  void end_pins() override { write(CallKind::end_pins); }
  void reset_connector_cache() override { write(CallKind::reset_connector_cache); }
  void reset_encoder_cache() override { write(CallKind::reset_encoder_cache); }
  void set_swap_costs(const SwapCosts& costs) override { write(CallKind::set_swap_costs, costs); }
  void set_pause_state(PauseState state) override { write(CallKind::set_pause_state, state); }
  void make_stats() override { write(CallKind::make_stats); }
  void planned(const StepPlan& /*plan*/) override {}
  void applied(const StepOutcome* /*outcome*/) override {}
  void answered(std::uint64_t /*answer*/) override {}

  ByteWriter out;

 private:
  template <class... Values>
  void write(CallKind kind, const Values&... values) {
    form_(kind, values...);
  }

  WriteForm form_{out};
};

}  // namespace quire
