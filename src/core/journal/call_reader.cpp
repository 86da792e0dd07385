// Reads recorded calls and makes them on a core. Used by replays and fuzzers, on the core's thread. The bytes may be anything: what they
// say is read into values with bounded memory, and a call that cannot be one is an error before anything is played. Fields that the core
// only hands through (sampling parameters) are not in the bytes, and stay null.
#include <fmt/format.h>

#include <limits>
#include <memory_resource>
#include <type_traits>
#include <utility>

#include "core/journal/byte_form.h"
#include "core/journal/call_fields.h"
#include "core/journal/call_kind.h"
#include "quire/core_calls.h"

namespace quire {
namespace {

// Fills the fields that it is called with. What they view is in the bytes, or here until the next clear().
class ReadForm {
 public:
  explicit ReadForm(std::span<const std::uint8_t> bytes) : in(bytes) {}
  template <class... Fields>
  void operator()(Fields&... values) {
    (get(values), ...);
  }
  void clear() {
    arena_.release();
    tags_ = {};
  }

  ByteReader in;

 private:
  template <class Value>
  void get(Value& value) {
    if constexpr (std::is_same_v<Value, TransferOutcome>)
      in.choice(value, 0, 1);
    else if constexpr (std::is_arithmetic_v<Value>)
      in.value(value);
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
    const std::size_t count = in.count();
    if (count == 0) return;
    auto* const items = std::pmr::polymorphic_allocator<Value>(&arena_).allocate(count);
    for (std::size_t i = 0; i < count; ++i) get(*std::construct_at(items + i));
    values = {items, count};
  }
  void get(std::span<const std::byte>& bytes) { bytes = std::as_bytes(std::span(in.text())); }
  void get(std::span<const std::uint8_t>& bytes) {
    const std::string_view text = in.text();
    bytes = {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
  }
  void get(std::string_view& text) { text = in.text(); }
  void get(std::string& text) { text = in.text(); }
  void get(const RequestTags*& tags) {
    bool has_tags = false;
    get(has_tags);
    if (!has_tags) return;
    (*this)(tags_.job, tags_.is_last_step, tags_.tool, tags_.tenant);
    tags_.hints.resize(in.count());
    for (auto& [name, value] : tags_.hints) (*this)(name, value);
    tags = &tags_;
  }
  void get(std::span<const MultimodalFeature>& features) {
    features_.resize(in.count());
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
    for (std::uint32_t i = 0; i < length && !in.failed(); ++i) mask.push_back(in.byte());
    feature.position = PlaceholderRange(offset, mask);
  }

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
  RequestStatus status{};
  bool preempt_running = false, reset_connector = false;
  PauseState pause{};
  SwapCosts costs;
};

void read_call(ReadForm& form, Call& call) {
  form.in.choice(call.kind, static_cast<std::uint8_t>(CallKind::add), static_cast<std::uint8_t>(CallKind::set_swap_costs));
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
      form.in.choice(call.status, static_cast<std::uint8_t>(RequestStatus::finished_stopped),
                     static_cast<std::uint8_t>(RequestStatus::finished_repetition));
      return form(call.input);
    case CallKind::reset_prefix_cache:
      return form(call.preempt_running, call.reset_connector, call.input);
    case CallKind::set_pause_state:
      return form.in.choice(call.pause, 0, static_cast<std::uint8_t>(PauseState::paused_all));
    case CallKind::set_swap_costs:
      return form(call.costs);
    case CallKind::end_pins:
    case CallKind::reset_connector_cache:
    case CallKind::reset_encoder_cache:
    case CallKind::make_stats:
      return;
  }
}

}  // namespace

struct CoreCallReader::Impl {
  explicit Impl(std::span<const std::uint8_t> bytes) : form(bytes) {
    for (const std::uint8_t expected : kCallsMagic)
      if (form.in.byte() != expected) form.in.fail();
  }
  ReadForm form;
  Call call;
};

CoreCallReader::CoreCallReader(std::span<const std::uint8_t> bytes) : impl_(std::make_unique<Impl>(bytes)) {}
CoreCallReader::~CoreCallReader() = default;

Result<bool> CoreCallReader::next() {
  ReadForm& form = impl_->form;
  form.clear();
  impl_->call = {};
  if (!form.in.failed() && form.in.at_end()) return false;
  if (!form.in.failed()) read_call(form, impl_->call);
  if (form.in.failed()) {
    return fail(ErrorCode::invalid_argument, "calls", fmt::format("are no calls of a core from byte {} on", form.in.position()),
                "give what a CoreCallWriter has taken, in this version");
  }
  return true;
}

const StepPlan* CoreCallReader::play(Core& core) {
  const Call& call = impl_->call;
  switch (call.kind) {
    case CallKind::add:
      (void)core.add(call.request, call.input);
      break;
    case CallKind::continue_session:
      (void)core.continue_session(call.id, call.has_session_input ? &call.session_input : nullptr, call.input);
      break;
    case CallKind::fork:
      (void)core.fork(call.id, call.child, call.input);
      break;
    case CallKind::schedule:
      return &core.schedule(call.input);
    case CallKind::apply:
      (void)core.apply(call.result, call.input);
      break;
    case CallKind::set_drafts:
      core.set_drafts(call.drafts);
      break;
    case CallKind::set_drafts_in_plan:
      core.set_drafts_in_plan(call.drafts);
      break;
    case CallKind::finish:
      core.finish(call.id, call.status, call.input);
      break;
    case CallKind::reset_prefix_cache:
      (void)core.reset_prefix_cache(call.preempt_running, call.reset_connector, call.input);
      break;
    case CallKind::end_pins:
      core.end_pins();
      break;
    case CallKind::reset_connector_cache:
      (void)core.reset_connector_cache();
      break;
    case CallKind::reset_encoder_cache:
      core.reset_encoder_cache();
      break;
    case CallKind::set_pause_state:
      core.set_pause_state(call.pause);
      break;
    case CallKind::make_stats:
      (void)core.make_stats();
      break;
    case CallKind::set_swap_costs:
      core.set_swap_costs(call.costs);
      break;
  }
  return nullptr;
}

}  // namespace quire
