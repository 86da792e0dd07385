// Writes and reads calls of a core. Used by recorders during the calls, and by replays and fuzzers. The input may be arbitrary bytes: it is
// read into values with bounded memory, and an invalid call is an error before it is played. Fields that the core only passes through
// (sampling parameters) are not written and are null when read.
#include "core/journal/call_bytes.h"

#include <cstddef>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
#include "core/journal/call_fields.h"

namespace quire {
namespace {

// Writes the fields that are passed to it.
class CallFieldWriter {
 public:
  explicit CallFieldWriter(ByteWriter& to) : out(&to) {}
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
    (*this)(tags->job, tags->is_last_step, tags->tool, tags->tenant, tags->is_background, tags->retention_s);
    out->number(tags->hints.size());
    for (const auto& [name, value] : tags->hints) (*this)(name, value);
  }
  void put(const MultimodalFeature& feature) {
    const PlaceholderRange& range = feature.position;
    (*this)(feature.identifier, range.offset(), range.length());
    // `embeds_in_range(0, 0)` returns a sum other than 0 only for a range with a mask.
    const bool has_mask = range.length() > 0 && (range.num_embeds() != range.length() || range.embeds_in_range(0, 0).second != 0);
    put(has_mask);
    for (std::int64_t i = 0; has_mask && i < range.length(); ++i) {
      const auto [first, second] = range.embeds_in_range(i, i + 1);
      put(second > first);
    }
  }
  // Takes a copy, because fields() has non-const arguments for readers.
  template <class Value>
  void put_fields(Value value) {
    fields(*this, value);
  }
};

// Reads into the fields that are passed to it. Their views refer to the input, or to this object until the next begin().
class CallFieldReader {
 public:
  template <class... Fields>
  void operator()(Fields&... values) {
    QUIRE_CHECK(in_ != nullptr, "fields are read after the start of a call");
    (get(values), ...);
  }
  // Begins the next call. Invalidates views of the previous one.
  void begin(ByteReader& from) {
    in_ = &from;
    arena_.release();
    tags_ = {};
  }

 private:
  template <class Value>
  void get(Value& value) {
    if constexpr (std::is_arithmetic_v<Value>)
      in_->value(value);
    else
      fields(*this, value);
  }
  void get(TransferOutcome& outcome) { in_->choice(outcome, 0, 1); }
  // Only statuses of ended requests are valid, because calls use a status only to end requests.
  void get(RequestStatus& status) {
    in_->choice(status, static_cast<std::uint8_t>(RequestStatus::finished_stopped),
                static_cast<std::uint8_t>(RequestStatus::finished_repetition));
  }
  void get(PauseState& state) { in_->choice(state, 0, static_cast<std::uint8_t>(PauseState::paused_all)); }
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
    (*this)(tags_.job, tags_.is_last_step, tags_.tool, tags_.tenant, tags_.is_background, tags_.retention_s);
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

constexpr std::size_t kNumKinds = std::variant_size_v<CoreCall>;
static_assert(std::is_same_v<std::variant_alternative_t<16, CoreCall>, core_call::FinishAll>, "recorded calls keep their kinds");

// Returns a call of the kind with this index, without arguments.
template <std::size_t... kIndex>
CoreCall empty_call(std::size_t index, std::index_sequence<kIndex...> /*all*/) {
  CoreCall call;
  (static_cast<void>(kIndex == index && (call.emplace<kIndex>(), true)), ...);
  return call;
}

}  // namespace

void write_call(ByteWriter& out, const CoreCall& call) {
  out.byte(static_cast<std::uint8_t>(call.index() + 1));
  CallFieldWriter form(out);
  std::visit([&form](const auto& one) { one.fields(form, one); }, call);
}

struct RecordedCall::Impl {
  CallFieldReader form;
  std::optional<CoreCall> call;
};

RecordedCall::RecordedCall() : impl_(std::make_unique<Impl>()) {}
RecordedCall::~RecordedCall() = default;

void RecordedCall::read(ByteReader& in) {
  impl_->form.begin(in);
  std::uint8_t kind = 0;
  in.choice(kind, 1, kNumKinds);
  impl_->call.reset();
  if (in.failed()) return;
  CoreCall& call = impl_->call.emplace(empty_call(kind - 1U, std::make_index_sequence<kNumKinds>()));
  std::visit([this](auto& one) { one.fields(impl_->form, one); }, call);
}

const CoreCall& RecordedCall::call() const {
  QUIRE_CHECK(impl_->call.has_value(), "a call was read");
  return *impl_->call;
}

}  // namespace quire
