#pragma once
// The fields of a core's configuration, in the order of their bytes: one list for writing and reading. A binding that does not name every
// field is no C++, so whoever adds one to CoreConfig learns of it here; then the version in config_bytes.cpp goes up.
// Included by config_bytes.cpp alone, twice over: `Form` is its writer or its reader. The order of fields is the order of bytes.
#include <concepts>
#include <type_traits>

#include "quire/base/core_config.h"

namespace quire {

template <class T, class Value>
concept Is = std::same_as<std::remove_const_t<T>, Value>;

// Of those with a base no binding names all fields: so many follow the base, no more and no fewer.
template <class T>
concept HasBaseAnd0 = requires { T{{}}; } && !requires { T{{}, {}}; };
template <class T>
concept HasBaseAnd1 = requires { T{{}, {}}; } && !requires { T{{}, {}, {}}; };
template <class T>
concept HasBaseAnd3 = requires { T{{}, {}, {}, {}}; } && !requires { T{{}, {}, {}, {}, {}}; };

template <class Base, class Spec>
auto& base_of(Spec& spec) {
  return static_cast<std::conditional_t<std::is_const_v<Spec>, const Base, Base>&>(spec);
}

template <class Form>
void fields(Form& form, Is<CacheDtype> auto& dtype) {
  auto& [name, bytes] = dtype;
  form(name, bytes);
}

template <class Form>
void fields(Form& form, Is<AttentionShape> auto& shape) {
  auto& [block_size, num_kv_heads, head_size, dtype, page_size_padded] = shape;
  form(block_size, num_kv_heads, head_size, dtype, page_size_padded);
}

template <class Form>
void fields(Form& form, Is<FullAttentionSpec> auto& spec) {
  static_assert(HasBaseAnd3<FullAttentionSpec>);
  form(base_of<AttentionShape>(spec), spec.head_size_v, spec.sliding_window, spec.attention_chunk_size);
}

template <class Form>
void fields(Form& form, Is<MlaAttentionSpec> auto& spec) {
  static_assert(HasBaseAnd1<MlaAttentionSpec>);
  form(base_of<FullAttentionSpec>(spec), spec.cache_dtype);
}

template <class Form>
void fields(Form& form, Is<SinkFullAttentionSpec> auto& spec) {
  static_assert(HasBaseAnd1<SinkFullAttentionSpec>);
  form(base_of<FullAttentionSpec>(spec), spec.sink_len);
}

template <class Form>
void fields(Form& form, Is<SlidingWindowSpec> auto& spec) {
  static_assert(HasBaseAnd1<SlidingWindowSpec>);
  form(base_of<AttentionShape>(spec), spec.sliding_window);
}

template <class Form>
void fields(Form& form, Is<ChunkedLocalSpec> auto& spec) {
  static_assert(HasBaseAnd1<ChunkedLocalSpec>);
  form(base_of<AttentionShape>(spec), spec.attention_chunk_size);
}

template <class Form>
void fields(Form& form, Is<MambaSpec> auto& spec) {
  auto& [block_size, shapes, dtypes, page_size_padded, mamba_type, mode, num_speculative_blocks] = spec;
  form(block_size, shapes, dtypes, page_size_padded, mamba_type, mode, num_speculative_blocks);
}

template <class Form>
void fields(Form& form, Is<CrossAttentionSpec> auto& spec) {
  static_assert(HasBaseAnd0<CrossAttentionSpec>);
  form(base_of<AttentionShape>(spec));
}

template <class Form>
void fields(Form& form, Is<EncoderOnlySpec> auto& spec) {
  static_assert(HasBaseAnd0<EncoderOnlySpec>);
  form(base_of<AttentionShape>(spec));
}

template <class Form>
void fields(Form& form, Is<KvCacheGroup> auto& group) {
  auto& [layer_names, spec, layer_specs] = group;
  form(layer_names, spec, layer_specs);
}

template <class Form>
void fields(Form& form, Is<KvCacheTensor> auto& tensor) {
  auto& [size, shared_by] = tensor;
  form(size, shared_by);
}

template <class Form>
void fields(Form& form, Is<KvCacheConfig> auto& kv) {
  auto& [num_blocks, groups, tensors] = kv;
  form(num_blocks, groups, tensors);
}

template <class Form>
void fields(Form& form, Is<SchedulerOptions> auto& options) {
  auto& [max_num_seqs, max_num_batched_tokens, max_model_len, long_prefill_token_threshold, max_num_waiting, enable_chunked_prefill,
         reserve_full_isl, policy, async_scheduling, max_in_flight_tokens, admit_oversized] = options;
  form(max_num_seqs, max_num_batched_tokens, max_model_len, long_prefill_token_threshold, max_num_waiting, enable_chunked_prefill,
       reserve_full_isl, policy, async_scheduling, max_in_flight_tokens, admit_oversized);
}

template <class Form>
void fields(Form& form, Is<PrefixCacheOptions> auto& options) {
  auto& [enable_prefix_caching, hash, hash_seed, root_hash, retention_interval, lifo_free_blocks] = options;
  form(enable_prefix_caching, hash, hash_seed, root_hash, retention_interval, lifo_free_blocks);
}

template <class Form>
void fields(Form& form, Is<SpeculationOptions> auto& options) {
  auto& [num_spec_tokens, num_lookahead_tokens, use_eagle] = options;
  form(num_spec_tokens, num_lookahead_tokens, use_eagle);
}

template <class Form>
void fields(Form& form, Is<EncoderOptions> auto& options) {
  auto& [max_encoder_tokens, encoder_cache_size, is_encoder_decoder, disable_chunked_mm_input, uncut_items] = options;
  form(max_encoder_tokens, encoder_cache_size, is_encoder_decoder, disable_chunked_mm_input, uncut_items);
}

template <class Form>
void fields(Form& form, Is<ParallelOptions> auto& options) {
  auto& [pipeline_parallel, dcp_world_size, pcp_world_size] = options;
  form(pipeline_parallel, dcp_world_size, pcp_world_size);
}

template <class Form>
void fields(Form& form, Is<ContinuumOptions> auto& options) {
  auto& [pin_s, longest_tool_s, max_jobs, max_tools, pins_give_way, pins_end_with_job, jobless_in_order] = options;
  form(pin_s, longest_tool_s, max_jobs, max_tools, pins_give_way, pins_end_with_job, jobless_in_order);
}

template <class Form>
void fields(Form& form, Is<CureOptions> auto& options) {
  auto& [forget_unwritten_blocks, discard_only_in_flight, reserve_windows_only, loaded_give_way, hits_before_loads, early_loads,
         unsure_drafts, cut_sessions, unloaded_begin_anew] = options;
  form(forget_unwritten_blocks, discard_only_in_flight, reserve_windows_only, loaded_give_way, hits_before_loads, early_loads,
       unsure_drafts, cut_sessions, unloaded_begin_anew);
}

template <class Form>
void fields(Form& form, Is<PressureOptions> auto& options) {
  auto& [admission_watermark, pressure_high, pressure_low, pressure_preempts] = options;
  form(admission_watermark, pressure_high, pressure_low, pressure_preempts);
}

template <class Form>
void fields(Form& form, Is<SwapOptions> auto& options) {
  auto& [num_swap_places, num_far_places, swap_choice] = options;
  form(num_swap_places, num_far_places, swap_choice);
}

template <class Form>
void fields(Form& form, Is<NewerOptions> auto& options) {
  auto& [max_num_active_seqs, num_watermark_blocks, shared_prefill_tokens, defer_block_free, drop_undelivered] = options;
  form(max_num_active_seqs, num_watermark_blocks, shared_prefill_tokens, defer_block_free, drop_undelivered);
}

template <class Form>
void fields(Form& form, Is<CoreLimits> auto& limits) {
  auto& [max_outstanding_plans, max_fork_family, max_open_transfers, max_loras] = limits;
  form(max_outstanding_plans, max_fork_family, max_open_transfers, max_loras);
}

template <class Form>
void fields(Form& form, Is<ReportOptions> auto& options) {
  auto& [log_stats, enable_kv_events, kv_metrics_sample, include_finished_set, count_common_prefix] = options;
  form(log_stats, enable_kv_events, kv_metrics_sample, include_finished_set, count_common_prefix);
}

template <class Form>
void fields(Form& form, Is<CoreConfig> auto& config) {
  auto& [decisions, scheduler, kv, block_size, cache_block_size, mamba_align, kv_load_failure, prefix_cache, speculation, encoder, parallel,
         continuum, cures, pressure, swap, newer, limits, report] = config;
  form(decisions, scheduler, kv, block_size, cache_block_size, mamba_align, kv_load_failure, prefix_cache, speculation, encoder, parallel,
       continuum, cures, pressure, swap, newer, limits, report);
}

}  // namespace quire
