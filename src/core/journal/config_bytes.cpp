// Byte format of a configuration: "QCF" and a version, then the fields. Written with recorded calls, and read by replays and fuzzers, on
// any thread. The input may be arbitrary bytes: enums are checked against their range, and the memory that is allocated is bounded by the
// size of the input. CoreConfig::validate() checks whether the values are consistent.
#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/journal/byte_stream.h"
#include "core/journal/config_fields.h"
#include "quire/core_calls.h"

namespace quire {
namespace {

constexpr std::uint8_t kConfigMagic[] = {'Q', 'C', 'F', 12};

class ConfigWriter {
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
      fields(*this, value);
  }
  void put(const std::string& text) { out.text(text); }
  template <class Value>
  void put(const std::optional<Value>& value) {
    put(value.has_value());
    if (value) put(*value);
  }
  template <class Value>
  void put(const std::vector<Value>& values) {
    out.number(values.size());
    for (const Value& value : values) put(value);
  }
  void put(const LayerKvSpec& spec) {
    out.byte(static_cast<std::uint8_t>(spec.index()));
    std::visit([this](const auto& kind) { put(kind); }, spec);
  }
};

constexpr std::uint8_t last_of(DecisionProfile /*kind*/) {
  return static_cast<std::uint8_t>(DecisionProfile::vllm_0_32);
}
constexpr std::uint8_t last_of(SchedulingPolicy /*kind*/) {
  return static_cast<std::uint8_t>(SchedulingPolicy::continuum);
}
constexpr std::uint8_t last_of(HashAlgorithm /*kind*/) {
  return static_cast<std::uint8_t>(HashAlgorithm::xxhash_cbor);
}
constexpr std::uint8_t last_of(KvLoadFailurePolicy /*kind*/) {
  return static_cast<std::uint8_t>(KvLoadFailurePolicy::recompute);
}
constexpr std::uint8_t last_of(SwapChoice /*kind*/) {
  return static_cast<std::uint8_t>(SwapChoice::measured);
}
constexpr std::uint8_t last_of(MambaCacheMode /*kind*/) {
  return static_cast<std::uint8_t>(MambaCacheMode::align);
}

class ConfigReader {
 public:
  explicit ConfigReader(std::span<const std::uint8_t> bytes) : in(bytes) {}
  template <class... Fields>
  void operator()(Fields&... values) {
    (get(values), ...);
  }

  ByteReader in;

 private:
  template <class Value>
  void get(Value& value) {
    if constexpr (std::is_enum_v<Value>)
      in.choice(value, 0, last_of(value));
    else if constexpr (std::is_arithmetic_v<Value>)
      in.value(value);
    else
      fields(*this, value);
  }
  void get(std::string& text) { text = in.text(); }
  template <class Value>
  void get(std::optional<Value>& value) {
    bool has_value = false;
    get(has_value);
    if (has_value) get(value.emplace());
  }
  // Reads items one by one, so that a wrong count does not allocate more memory than the input justifies.
  template <class Value>
  void get(std::vector<Value>& values) {
    for (std::size_t left = in.count(); left > 0 && !in.failed(); --left) get(values.emplace_back());
  }
  void get(LayerKvSpec& spec) { get_kind(spec, in.byte()); }
  template <std::size_t kKind = 0>
  void get_kind(LayerKvSpec& spec, std::size_t kind) {
    if constexpr (kKind == std::variant_size_v<LayerKvSpec>)
      in.fail();
    else if (kind == kKind)
      get(spec.emplace<kKind>());
    else
      get_kind<kKind + 1>(spec, kind);
  }
};

}  // namespace

std::vector<std::uint8_t> encode(const CoreConfig& config) {
  ConfigWriter form;
  form.out.bytes.assign(std::begin(kConfigMagic), std::end(kConfigMagic));
  form(config);
  return std::move(form.out.bytes);
}

Result<CoreConfig> decode_core_config(std::span<const std::uint8_t> bytes) {
  ConfigReader form(bytes);
  for (const std::uint8_t expected : kConfigMagic)
    if (form.in.byte() != expected) form.in.fail();
  CoreConfig config;
  form(config);
  if (!form.in.at_end()) form.in.fail();
  if (form.in.failed()) {
    return fail(ErrorCode::invalid_argument, "config",
                fmt::format("the data from byte {} on is not a valid core configuration", form.in.position()),
                "use the output of encode() of this version");
  }
  return config;
}

}  // namespace quire
