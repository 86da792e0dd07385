// Writes the calls of a core as bytes, each as its kind and its fields (call_fields.h). Called beside the core, with the same arguments, on
// its thread. It copies what it is given and keeps no views; nothing is written to a file here.
#include <type_traits>
#include <utility>

#include "core/journal/byte_form.h"
#include "core/journal/call_fields.h"
#include "core/journal/call_kind.h"
#include "quire/core_calls.h"

namespace quire {
namespace {

// Writes the fields that it is called with.
class WriteForm {
 public:
  template <class... Fields>
  void operator()(const Fields&... values) {
    (put(values), ...);
  }

  ByteWriter out;

 private:
  template <class Value>
  void put(const Value& value) {
    if constexpr (std::is_arithmetic_v<Value> || std::is_enum_v<Value>)
      out.value(value);
    else
      put_fields(value);
  }
  template <class Tag, class Rep>
  void put(const Id<Tag, Rep>& id) {
    out.number(id.value);
  }
  template <class Value>
  void put(const std::optional<Value>& value) {
    put(value.has_value());
    if (value) put(*value);
  }
  template <class Value>
  void put(const std::span<const Value>& values) {
    out.number(values.size());
    for (const Value& value : values) put(value);
  }
  void put(const std::span<const std::byte>& bytes) { out.text({reinterpret_cast<const char*>(bytes.data()), bytes.size()}); }
  void put(const std::span<const std::uint8_t>& bytes) { put(std::as_bytes(bytes)); }
  void put(const std::string_view& text) { out.text(text); }
  void put(const std::string& text) { out.text(text); }
  void put(const RequestTags* const& tags) {
    put(tags != nullptr);
    if (tags == nullptr) return;
    (*this)(tags->job, tags->is_last_step, tags->tool, tags->tenant);
    out.number(tags->hints.size());
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

}  // namespace

struct CoreCallWriter::Impl {
  WriteForm form;

  template <class... Values>
  void write(CallKind kind, const Values&... values) {
    form(kind, values...);
  }
};

CoreCallWriter::CoreCallWriter() : impl_(std::make_unique<Impl>()) {
  impl_->form.out.bytes.assign(std::begin(kCallsMagic), std::end(kCallsMagic));
}
CoreCallWriter::~CoreCallWriter() = default;

void CoreCallWriter::add(const NewRequest& request, const StepInput& input) {
  impl_->write(CallKind::add, request, input);
}

void CoreCallWriter::continue_session(RequestId id, const SessionInput* input, const StepInput& now) {
  impl_->write(CallKind::continue_session, id, input != nullptr);
  if (input != nullptr) impl_->form(*input);
  impl_->form(now);
}

void CoreCallWriter::fork(RequestId parent, const ForkRequest& child, const StepInput& input) {
  impl_->write(CallKind::fork, parent, child, input);
}

void CoreCallWriter::schedule(const StepInput& input) {
  impl_->write(CallKind::schedule, input);
}

void CoreCallWriter::apply(const StepResult& result, const StepInput& input) {
  impl_->write(CallKind::apply, result, input);
}

void CoreCallWriter::set_drafts(std::span<const Draft> drafts) {
  impl_->write(CallKind::set_drafts, drafts);
}

void CoreCallWriter::set_drafts_in_plan(std::span<const Draft> drafts) {
  impl_->write(CallKind::set_drafts_in_plan, drafts);
}

void CoreCallWriter::finish(RequestId id, RequestStatus status, const StepInput& input) {
  impl_->write(CallKind::finish, id, status, input);
}

void CoreCallWriter::reset_prefix_cache(bool preempt_running, bool reset_connector, const StepInput& input) {
  impl_->write(CallKind::reset_prefix_cache, preempt_running, reset_connector, input);
}

void CoreCallWriter::end_pins() {
  impl_->write(CallKind::end_pins);
}

void CoreCallWriter::reset_connector_cache() {
  impl_->write(CallKind::reset_connector_cache);
}

void CoreCallWriter::reset_encoder_cache() {
  impl_->write(CallKind::reset_encoder_cache);
}

void CoreCallWriter::set_swap_costs(const SwapCosts& costs) {
  impl_->write(CallKind::set_swap_costs, costs);
}

void CoreCallWriter::set_pause_state(PauseState state) {
  impl_->write(CallKind::set_pause_state, state);
}

void CoreCallWriter::make_stats() {
  impl_->write(CallKind::make_stats);
}

std::vector<std::uint8_t> CoreCallWriter::take() {
  return std::exchange(impl_->form.out.bytes, {});
}

}  // namespace quire
