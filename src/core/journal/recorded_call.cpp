// Reads recorded calls, and makes them on a core or tells them to others. Used by replays and fuzzers, on the core's thread. The bytes may
// be anything: what they say is read into values with bounded memory, and a call that cannot be one is an error before anything is played.
// Fields that the core only hands through (sampling parameters) are not in the bytes, and stay null.
#include "core/journal/recorded_call.h"

#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/check.h"
#include "core/journal/call_fields.h"
#include "core/journal/call_kind.h"

namespace quire {
namespace {

// Fills the fields that it is called with. What they view is in the bytes, or here until the next clear().
class ReadForm {
 public:
  template <class... Fields>
  void operator()(Fields&... values) {
    QUIRE_CHECK(in_ != nullptr, "fields are of the call that was begun");
    (get(values), ...);
  }
  // What was read before is gone.
  void begin(ByteReader& from) {
    in_ = &from;
    arena_.release();
    tags_ = {};
  }

 private:
  template <class Value>
  void get(Value& value) {
    if constexpr (std::is_same_v<Value, TransferOutcome>)
      in_->choice(value, 0, 1);
    else if constexpr (std::is_arithmetic_v<Value>)
      in_->value(value);
    else
      fields(*this, value);
  }
  template <class Tag, class Rep>
  void get(Id<Tag, Rep>& id) {
    get(id.value);
  }
  template <class Value>
  void get(std::optional<Value>& value) {
    bool has_value = false;
    get(has_value);
    if (has_value) get(value.emplace());
  }
  template <class Value>
  void get(std::span<const Value>& values) {
    static_assert(std::is_trivially_destructible_v<Value>);
    const std::size_t count = in_->count();
    if (count == 0) return;
    auto* const items = std::pmr::polymorphic_allocator<Value>(&arena_).allocate(count);
    for (std::size_t i = 0; i < count; ++i) get(*std::construct_at(items + i));
    values = {items, count};
  }
  void get(std::span<const std::byte>& bytes) { bytes = std::as_bytes(std::span(in_->text())); }
  void get(std::span<const std::uint8_t>& bytes) {
    const std::string_view text = in_->text();
    bytes = {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
  }
  void get(std::string_view& text) { text = in_->text(); }
  void get(std::string& text) { text = in_->text(); }
  void get(const RequestTags*& tags) {
    bool has_tags = false;
    get(has_tags);
    if (!has_tags) return;
    (*this)(tags_.job, tags_.is_last_step, tags_.tool, tags_.tenant);
    tags_.hints.resize(in_->count());
    for (auto& [name, value] : tags_.hints) (*this)(name, value);
    tags = &tags_;
  }
  void get(std::span<const MultimodalFeature>& features) {
    features_.resize(in_->count());
    for (MultimodalFeature& feature : features_) get(feature);
    features = features_;
  }
  void get(MultimodalFeature& feature) {
    std::uint32_t offset = 0, length = 0;
    bool has_mask = false;
    (*this)(feature.identifier, offset, length, has_mask);
    feature.position = PlaceholderRange(offset, length);
    if (!has_mask) return;
    std::vector<std::uint8_t> mask;
    for (std::uint32_t i = 0; i < length && !in_->failed(); ++i) mask.push_back(in_->byte());
    feature.position = PlaceholderRange(offset, mask);
  }

  ByteReader* in_ = nullptr;
  std::pmr::monotonic_buffer_resource arena_;
  std::vector<MultimodalFeature> features_;
  RequestTags tags_;
};

struct Call {
  CallKind kind{};
  StepInput input;
  NewRequest request;
  RequestId id;
  bool has_session_input = false;
  SessionInput session_input;
  ForkRequest child;
  StepResult result;
  std::span<const Draft> drafts;
  std::span<const RequestId> ids;
  RequestStatus status{};
  bool preempt_running = false, reset_connector = false;
  PauseState pause{};
  SwapCosts costs;
};

void read_fields(ReadForm& form, ByteReader& in, Call& call) {
  in.choice(call.kind, static_cast<std::uint8_t>(CallKind::add), static_cast<std::uint8_t>(CallKind::finish_all));
  switch (call.kind) {
    case CallKind::add:
      return form(call.request, call.input);
    case CallKind::continue_session:
      form(call.id, call.has_session_input);
      if (call.has_session_input) form(call.session_input);
      return form(call.input);
    case CallKind::fork:
      return form(call.id, call.child, call.input);
    case CallKind::schedule:
      return form(call.input);
    case CallKind::apply:
      return form(call.result, call.input);
    case CallKind::set_drafts:
    case CallKind::set_drafts_in_plan:
      return form(call.drafts);
    case CallKind::finish:
      form(call.id);
      in.choice(call.status, static_cast<std::uint8_t>(RequestStatus::finished_stopped),
                static_cast<std::uint8_t>(RequestStatus::finished_repetition));
      return form(call.input);
    case CallKind::finish_all:
      form(call.ids);
      in.choice(call.status, static_cast<std::uint8_t>(RequestStatus::finished_stopped),
                static_cast<std::uint8_t>(RequestStatus::finished_repetition));
      return form(call.input);
    case CallKind::reset_prefix_cache:
      return form(call.preempt_running, call.reset_connector, call.input);
    case CallKind::set_pause_state:
      return in.choice(call.pause, 0, static_cast<std::uint8_t>(PauseState::paused_all));
    case CallKind::set_swap_costs:
      return form(call.costs);
    case CallKind::forget_blocks:
      return form(call.id);
    case CallKind::end_pins:
    case CallKind::reset_connector_cache:
    case CallKind::reset_encoder_cache:
    case CallKind::make_stats:
      return;
  }
}

// Makes each call that it is told of.
class CorePlayer final : public CallSink {
 public:
  explicit CorePlayer(Core& core) : core_(&core) {}
  void add(const NewRequest& request, const StepInput& input) override { (void)core_->add(request, input); }
  void continue_session(RequestId id, const SessionInput* input, const StepInput& now) override {
    (void)core_->continue_session(id, input, now);
  }
  void fork(RequestId parent, const ForkRequest& child, const StepInput& input) override { (void)core_->fork(parent, child, input); }
  void schedule(const StepInput& input) override { plan = &core_->schedule(input); }
  void apply(const StepResult& result, const StepInput& input) override { (void)core_->apply(result, input); }
  void set_drafts(std::span<const Draft> drafts) override { core_->set_drafts(drafts); }
  void set_drafts_in_plan(std::span<const Draft> drafts) override { core_->set_drafts_in_plan(drafts); }
  void finish(RequestId id, RequestStatus status, const StepInput& input) override { core_->finish(id, status, input); }
  void finish(std::span<const RequestId> ids, RequestStatus status, const StepInput& input) override {
    std::vector<RequestId> finished;
    core_->finish(ids, status, finished, input);
  }
  void forget_blocks(RequestId id) override { core_->forget_blocks(id); }
  void reset_prefix_cache(bool preempt_running, bool reset_connector, const StepInput& input) override {
    (void)core_->reset_prefix_cache(preempt_running, reset_connector, input);
  }
  void end_pins() override { core_->end_pins(); }
  void reset_connector_cache() override { core_->reset_connector_cache(); }
  void reset_encoder_cache() override { core_->reset_encoder_cache(); }
  void set_swap_costs(const SwapCosts& costs) override { core_->set_swap_costs(costs); }
  void set_pause_state(PauseState state) override { core_->set_pause_state(state); }
  void make_stats() override { core_->make_stats(); }
  void planned(const StepPlan& /*plan*/) override {}
  void applied(const StepOutcome* /*outcome*/) override {}
  void answered(std::uint64_t /*answer*/) override {}

  const StepPlan* plan = nullptr;

 private:
  Core* core_;
};

}  // namespace

struct RecordedCall::Impl {
  ReadForm form;
  Call call;
};

RecordedCall::RecordedCall() : impl_(std::make_unique<Impl>()) {}
RecordedCall::~RecordedCall() = default;

void RecordedCall::read(ByteReader& in) {
  impl_->form.begin(in);
  impl_->call = {};
  read_fields(impl_->form, in, impl_->call);
}

bool RecordedCall::is_schedule() const {
  return impl_->call.kind == CallKind::schedule;
}

const StepPlan* RecordedCall::play(Core& core) const {
  CorePlayer player(core);
  tell(player);
  return player.plan;
}

void RecordedCall::tell(CallSink& sink) const {
  const Call& call = impl_->call;
  QUIRE_CHECK(call.kind != CallKind{}, "a call was read");
  switch (call.kind) {
    case CallKind::add:
      return sink.add(call.request, call.input);
    case CallKind::continue_session:
      return sink.continue_session(call.id, call.has_session_input ? &call.session_input : nullptr, call.input);
    case CallKind::fork:
      return sink.fork(call.id, call.child, call.input);
    case CallKind::schedule:
      return sink.schedule(call.input);
    case CallKind::apply:
      return sink.apply(call.result, call.input);
    case CallKind::set_drafts:
      return sink.set_drafts(call.drafts);
    case CallKind::set_drafts_in_plan:
      return sink.set_drafts_in_plan(call.drafts);
    case CallKind::finish:
      return sink.finish(call.id, call.status, call.input);
    case CallKind::finish_all:
      return sink.finish(call.ids, call.status, call.input);
    case CallKind::reset_prefix_cache:
      return sink.reset_prefix_cache(call.preempt_running, call.reset_connector, call.input);
    case CallKind::forget_blocks:
      return sink.forget_blocks(call.id);
    case CallKind::end_pins:
      return sink.end_pins();
    case CallKind::reset_connector_cache:
      return sink.reset_connector_cache();
    case CallKind::reset_encoder_cache:
      return sink.reset_encoder_cache();
    case CallKind::set_pause_state:
      return sink.set_pause_state(call.pause);
    case CallKind::make_stats:
      return sink.make_stats();
    case CallKind::set_swap_costs:
      return sink.set_swap_costs(call.costs);
  }
}

}  // namespace quire
