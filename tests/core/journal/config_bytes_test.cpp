// Tests configurations as bytes: each field of each group kind is restored, and any other bytes are an error.
#include <gtest/gtest.h>

#include <bit>
#include <concepts>
#include <limits>
#include <string>
#include <vector>

#include "base/digest.h"
#include "base/random.h"
#include "quire/core_calls.h"

namespace quire::test {
namespace {

template <class Change>
void change_shape(AttentionShape& shape, Change& change) {
  change(shape.block_size, shape.num_kv_heads, shape.head_size, shape.dtype.name, shape.dtype.bytes, shape.page_size_padded);
}

template <class Change>
void change_full(FullAttentionSpec& spec, Change& change) {
  change_shape(spec, change);
  change(spec.head_size_v, spec.sliding_window, spec.attention_chunk_size);
}

enum class HowToChange : std::uint8_t { only_one, all_at_random, to_its_number };

class FieldChange {
 public:
  FieldChange(HowToChange how, std::uint64_t number) : how_(how), number_(number), random_(number) {}

  template <class... Fields>
  void operator()(Fields&... values) {
    (one(values), ...);
  }
  [[nodiscard]] std::uint64_t num_fields() const { return num_met_; }

 private:
  void one(std::integral auto& value) {
    using Value = std::remove_reference_t<decltype(value)>;
    if (!begin()) return;
    if constexpr (std::same_as<Value, bool>)
      value = how_ == HowToChange::all_at_random ? random_.below(2) == 0 : !value;
    else
      value = how_ == HowToChange::only_one ? value + 1 : static_cast<Value>(any_number());
  }
  void one(double& value) {
    if (begin()) value = how_ == HowToChange::only_one ? value + 0.25 : static_cast<double>(any_number()) / 7;
  }
  void one(std::string& value) {
    if (begin()) value = how_ == HowToChange::only_one ? value + '\0' : std::to_string(any_number());
  }
  template <class Enum>
    requires std::is_enum_v<Enum>
  void one(Enum& value) {
    if (begin()) value = static_cast<Enum>(how_ == HowToChange::all_at_random ? random_.below(2) : 1);
  }
  template <class Value>
  void one(std::optional<Value>& value) {
    if (how_ == HowToChange::all_at_random && random_.below(2) == 0)
      value.reset();
    else if (value)
      one(*value);
    else if (begin())
      value.emplace();
  }
  template <class Value>
  void one(std::vector<Value>& values) {
    if (begin()) values.emplace_back();
  }

  bool begin() {
    const std::uint64_t number = num_met_++;
    return how_ != HowToChange::only_one || number == number_;
  }
  std::uint64_t any_number() {
    if (how_ == HowToChange::to_its_number) return num_met_;
    return random_.below(4) == 0 ? random_.next() : random_.below(200);
  }

  HowToChange how_;
  std::uint64_t number_, num_met_ = 0;
  Random random_;
};

// The fields are listed again by hand: a field missing in the tested list is missing in everything derived from it.
struct ChangeKind {
  void operator()(FullAttentionSpec& spec) const { change_full(spec, change); }
  void operator()(MlaAttentionSpec& spec) const {
    change_full(spec, change);
    change(spec.cache_dtype);
  }
  void operator()(SinkFullAttentionSpec& spec) const {
    change_full(spec, change);
    change(spec.sink_len);
  }
  void operator()(SlidingWindowSpec& spec) const {
    change_shape(spec, change);
    change(spec.sliding_window);
  }
  void operator()(ChunkedLocalSpec& spec) const {
    change_shape(spec, change);
    change(spec.attention_chunk_size);
  }
  void operator()(MambaSpec& spec) const {
    change(spec.block_size, spec.shapes[1][1], spec.dtypes[0].name, spec.page_size_padded);
    change(spec.mamba_type, spec.mode, spec.num_speculative_blocks);
  }
  void operator()(CrossAttentionSpec& spec) const { change_shape(spec, change); }
  void operator()(EncoderOnlySpec& spec) const { change_shape(spec, change); }

  FieldChange& change;
};

void change_config(CoreConfig& c, FieldChange& change) {
  change(c.decisions);
  auto& s = c.scheduler;
  change(s.max_num_seqs, s.max_num_batched_tokens, s.max_model_len, s.long_prefill_token_threshold);
  change(s.max_num_waiting, s.enable_chunked_prefill, s.reserve_full_isl, s.policy, s.tenant_turns, s.async_scheduling, s.admit_oversized,
         s.max_in_flight_tokens);
  change(c.kv.num_blocks, c.kv.groups, c.kv.tensors);
  for (KvCacheGroup& group : c.kv.groups) {
    change(group.layer_names, group.layer_specs);
    std::visit(ChangeKind{change}, group.spec);
    for (LayerKvSpec& spec : group.layer_specs) std::visit(ChangeKind{change}, spec);
  }
  for (KvCacheTensor& tensor : c.kv.tensors) change(tensor.size, tensor.shared_by);
  change(c.block_size, c.cache_block_size, c.mamba_align, c.kv_load_failure);
  auto& p = c.prefix_cache;
  change(p.enable_prefix_caching, p.hash, p.hash_seed, p.root_hash, p.lifo_free_blocks, p.retention_interval, p.slru_share,
         p.retained_share);
  change(c.speculation.num_spec_tokens, c.speculation.num_lookahead_tokens, c.speculation.use_eagle);
  auto& n = c.newer;
  change(n.max_num_active_seqs, n.num_watermark_blocks, n.shared_prefill_tokens, n.defer_block_free, n.drop_undelivered);
  auto& e = c.encoder;
  change(e.max_encoder_tokens, e.encoder_cache_size, e.is_encoder_decoder, e.disable_chunked_mm_input, e.uncut_items);
  change(c.parallel.pipeline_parallel, c.parallel.dcp_world_size, c.parallel.pcp_world_size);
  auto& a = c.continuum;
  change(a.pin_s, a.longest_tool_s, a.max_jobs, a.max_tools, a.pins_give_way, a.pins_end_with_job, a.jobless_in_order);
  auto& u = c.fixes;
  change(u.forget_unwritten_blocks, u.discard_only_in_flight, u.reserve_windows_only, u.loaded_give_way, u.hits_before_loads);
  change(u.early_loads, u.unsure_drafts, u.cut_sessions, u.unloaded_begin_anew, u.idle_sessions_yield);
  change(c.pressure.admission_watermark, c.pressure.pressure_high, c.pressure.pressure_low, c.pressure.pressure_preempts);
  change(c.swap.num_swap_slots, c.swap.num_slow_slots, c.swap.swap_choice);
  auto& l = c.limits;
  change(l.max_outstanding_plans, l.max_fork_family, l.max_open_transfers, l.max_loras);
  auto& r = c.report;
  change(r.log_stats, r.enable_kv_events, r.kv_metrics_sample, r.include_finished_set, r.count_common_prefix);
}

// A group of each kind, and one with a spec for each of its layers.
CoreConfig config_of_all_kinds() {
  MambaSpec mamba;
  mamba.shapes = {{1}, {2, 3}};
  mamba.dtypes = {{"float32", 4}, {"bfloat16", 2}};
  const std::vector<LayerKvSpec> kinds = {FullAttentionSpec{},  MlaAttentionSpec{}, SinkFullAttentionSpec{},
                                          SlidingWindowSpec{},  ChunkedLocalSpec{}, mamba,
                                          CrossAttentionSpec{}, EncoderOnlySpec{}};
  static_assert(std::variant_size_v<LayerKvSpec> == 8);
  CoreConfig config;
  for (const LayerKvSpec& kind : kinds) config.kv.groups.push_back({.layer_names = {"layer"}, .spec = kind, .layer_specs = {}});
  config.kv.groups.push_back({.layer_names = {"a", "b"}, .spec = FullAttentionSpec{}, .layer_specs = kinds});
  config.kv.tensors = {{.size = 1, .shared_by = {"a", "b"}}, {.size = 2, .shared_by = {}}};
  return config;
}

TEST(ConfigBytes, RoundTripsEachField) {
  const CoreConfig plain = config_of_all_kinds();
  const std::vector<std::uint8_t> plain_bytes = encode(plain);
  EXPECT_EQ(decode_core_config(plain_bytes).value(), plain);
  std::uint64_t num_fields = 1;
  for (std::uint64_t i = 0; i < num_fields; ++i) {
    FieldChange change(HowToChange::only_one, i);
    CoreConfig other = plain;
    change_config(other, change);
    num_fields = change.num_fields();
    ASSERT_NE(other, plain) << "field " << i;
    const std::vector<std::uint8_t> bytes = encode(other);
    ASSERT_NE(bytes, plain_bytes) << "field " << i;
    ASSERT_EQ(decode_core_config(bytes).value(), other) << "field " << i;
  }
  EXPECT_GT(num_fields, 150U);
}

// Checks that the enum has `count` values and that the next value is an error.
template <class Enum>
void must_have_values(std::uint8_t count, Enum& choice, const CoreConfig& config) {
  for (std::uint8_t value = 0; value <= count; ++value) {
    choice = static_cast<Enum>(value);
    const auto again = decode_core_config(encode(config));
    ASSERT_EQ(again.has_value(), value < count) << int{value};
    if (again) ASSERT_EQ(*again, config);
  }
  choice = Enum{};
}

TEST(ConfigBytes, RoundTripsEachEnumValueAndRefusesOthers) {
  CoreConfig config;
  must_have_values(2, config.decisions, config);
  must_have_values(3, config.scheduler.policy, config);
  must_have_values(5, config.prefix_cache.hash, config);
  must_have_values(2, config.kv_load_failure, config);
  config.kv.groups = {{.layer_names = {}, .spec = MambaSpec{}, .layer_specs = {}}};
  must_have_values(3, std::get<MambaSpec>(config.kv.groups[0].spec).mode, config);
}

TEST(ConfigBytes, RoundTripsRandomValues) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    FieldChange change(HowToChange::all_at_random, seed);
    CoreConfig config = config_of_all_kinds();
    change_config(config, change);
    const auto again = decode_core_config(encode(config));
    ASSERT_TRUE(again.has_value()) << again.error().to_string();
    ASSERT_EQ(*again, config) << "seed " << seed;
  }
}

TEST(ConfigBytes, BytesOfAVersionDoNotChange) {
  FieldChange change(HowToChange::to_its_number, 0);
  CoreConfig config = config_of_all_kinds();
  change_config(config, change);
  const std::vector<std::uint8_t> bytes = encode(config);
  EXPECT_EQ(to_hex(std::span(bytes).first(4)), "5143460c");
  EXPECT_EQ(to_hex(Sha256::of(std::as_bytes(std::span(bytes)))), "a38e3d39088b7ec0fae582a43bf40f1c955428a2ebf89ecad0da73093a624cf4")
      << "recorded configurations can no longer be read: raise the version in config_bytes.cpp";
}

TEST(ConfigBytes, DecodesInvalidConfigurationsForValidateToRefuse) {
  CoreConfig config = config_of_all_kinds();
  config.limits.max_outstanding_plans = 1000;
  const CoreConfig again = decode_core_config(encode(config)).value();
  EXPECT_EQ(again.validate().error().to_string(), config.validate().error().to_string());
  EXPECT_FALSE(Core::create(again).has_value());
}

TEST(ConfigBytes, AnyBytesAreAConfigurationOrAnError) {
  const std::vector<std::uint8_t> good = encode(config_of_all_kinds());
  for (std::size_t size = 0; size < good.size(); ++size) {
    const auto cut = decode_core_config(std::span(good).first(size));
    ASSERT_FALSE(cut.has_value()) << size;
    ASSERT_EQ(cut.error().field, "config");
  }
  std::vector<std::uint8_t> longer = good;
  longer.push_back(0);
  ASSERT_FALSE(decode_core_config(longer).has_value());
  longer = good;
  ++longer[3];
  EXPECT_NE(decode_core_config(longer).error().message.find("byte 4"), std::string::npos) << "another version";
  CoreConfig small;
  small.scheduler.max_model_len = small.kv.num_blocks = 9;
  small.kv.groups = {{.layer_names = {"layer"}, .spec = FullAttentionSpec{}, .layer_specs = {}}};
  const std::vector<std::uint8_t> small_bytes = encode(small);
  ASSERT_TRUE(small.validate().has_value()) << small.validate().error().to_string();
  Random random(9);
  std::uint32_t num_refused = 0, num_valid = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::vector<std::uint8_t> bytes = i % 2 == 0 ? good : small_bytes;
    for (std::uint64_t changes = random.below(5); changes > 0; --changes)
      bytes[4 + random.below(bytes.size() - 4)] = static_cast<std::uint8_t>(random.next());
    const auto config = decode_core_config(bytes);
    num_refused += config ? 0 : 1;
    if (!config) ASSERT_EQ(config.error().field, "config");
    if (!config) continue;
    ASSERT_EQ(encode(decode_core_config(encode(*config)).value()), encode(*config));
    num_valid += config->validate().has_value() ? 1 : 0;
  }
  EXPECT_GT(num_refused, 1000U);
  EXPECT_GT(num_valid, 1000U);
}

}  // namespace
}  // namespace quire::test
