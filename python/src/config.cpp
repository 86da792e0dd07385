// CoreConfig: every option of the core, by name.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "errors.h"
#include "module.h"
#include "quire/core.h"

namespace quire::python {
namespace {

using Class = nb::class_<CoreConfig>;

// A field of one of CoreConfig's groups: shown flat, under the field's own name.
template <class Group, class T>
void option(Class& c, const char* name, Group CoreConfig::* group, T Group::* field, const char* doc) {
  c.def_prop_rw(
      name, [=](const CoreConfig& self) { return self.*group.*field; },
      [=](CoreConfig& self, T value) { self.*group.*field = std::move(value); }, doc);
}

template <class T>
void option(Class& c, const char* name, T CoreConfig::* field, const char* doc) {
  c.def_rw(name, field, doc);
}

void bind_enums(nb::module_& m) {
  nb::enum_<SchedulingPolicy>(m, "SchedulingPolicy", "Which waiting request goes first.")
      .value("FCFS", SchedulingPolicy::fcfs, "In the order of arrival.")
      .value("PRIORITY", SchedulingPolicy::priority, "By (priority, arrival time, name); smaller goes first.")
      .value("CONTINUUM", SchedulingPolicy::continuum, "By job; the blocks of an agent's turn stay while its tool runs.");
  nb::enum_<DecisionProfile>(m, "DecisionProfile", "Whose decisions the core makes, where versions of vLLM differ.")
      .value("VLLM_0_19", DecisionProfile::vllm_0_19, "vLLM 0.19.0.")
      .value("VLLM_0_32", DecisionProfile::vllm_0_32, "vLLM 0.32.0: full attention, without connectors and encoders.");
  nb::enum_<HashAlgorithm>(m, "HashAlgorithm", "How blocks are named: vLLM's prefix_caching_hash_algo, and one of ours.")
      .value("CANONICAL", HashAlgorithm::canonical, "SHA-256 over an encoding in which every field is tagged.")
      .value("SHA256", HashAlgorithm::sha256, "Equal to vLLM's sha256 (pickle).")
      .value("SHA256_CBOR", HashAlgorithm::sha256_cbor, "Equal to vLLM's sha256_cbor.")
      .value("XXHASH", HashAlgorithm::xxhash, "Equal to vLLM's xxhash (pickle).")
      .value("XXHASH_CBOR", HashAlgorithm::xxhash_cbor, "Equal to vLLM's xxhash_cbor.");
  nb::enum_<KvLoadFailurePolicy>(m, "KvLoadFailurePolicy", "What becomes of requests whose external blocks could not be loaded.")
      .value("FAIL", KvLoadFailurePolicy::fail, "They end with an error.")
      .value("RECOMPUTE", KvLoadFailurePolicy::recompute, "Their tokens are computed here.");
  nb::enum_<PauseState>(m, "PauseState", "What may be scheduled.")
      .value("UNPAUSED", PauseState::unpaused, "Everything.")
      .value("PAUSED_NEW", PauseState::paused_new, "Only requests that run already.")
      .value("PAUSED_ALL", PauseState::paused_all, "Nothing.");
}

void bind_scheduling(Class& c) {
  option(c, "decisions", &CoreConfig::decisions, "Which version of vLLM decides, where they differ.");
  option(c, "max_num_seqs", &CoreConfig::scheduler, &SchedulerOptions::max_num_seqs, "Requests in the running batch.");
  option(c, "max_num_batched_tokens", &CoreConfig::scheduler, &SchedulerOptions::max_num_batched_tokens, "Token budget of one step.");
  option(c, "max_model_len", &CoreConfig::scheduler, &SchedulerOptions::max_model_len, "Prompt and output tokens of a request.");
  option(c, "long_prefill_token_threshold", &CoreConfig::scheduler, &SchedulerOptions::long_prefill_token_threshold,
         "At most this many tokens of a request per step; 0: no limit.");
  option(c, "max_num_waiting", &CoreConfig::scheduler, &SchedulerOptions::max_num_waiting,
         "Requests beyond this many waiting ones are refused.");
  option(c, "enable_chunked_prefill", &CoreConfig::scheduler, &SchedulerOptions::enable_chunked_prefill,
         "A prompt may be spread over steps.");
  option(c, "reserve_full_isl", &CoreConfig::scheduler, &SchedulerOptions::reserve_full_isl,
         "Admit a request only when its whole input fits.");
  option(c, "policy", &CoreConfig::scheduler, &SchedulerOptions::policy,
         "Which waiting request goes first, and which running one gives way.");
  option(c, "async_scheduling", &CoreConfig::scheduler, &SchedulerOptions::async_scheduling,
         "A step may be planned while the one before it runs.");
  option(c, "max_in_flight_tokens", &CoreConfig::scheduler, &SchedulerOptions::max_in_flight_tokens,
         "Tokens of all plans under way at most; 0: no bound.");
  option(c, "admit_oversized", &CoreConfig::scheduler, &SchedulerOptions::admit_oversized,
         "Take requests that can never run, as vLLM's scheduler does.");
}

void bind_newer(Class& c) {
  option(c, "max_num_active_seqs", &CoreConfig::newer, &NewerOptions::max_num_active_seqs,
         "vLLM 0.32.0: requests that may run; 0: max_num_seqs.");
  option(c, "num_watermark_blocks", &CoreConfig::newer, &NewerOptions::num_watermark_blocks,
         "vLLM 0.32.0: blocks that an admission leaves free, if a request runs.");
  option(c, "shared_prefill_tokens", &CoreConfig::newer, &NewerOptions::shared_prefill_tokens,
         "vLLM 0.32.0: long_prefill_token_threshold does not bind below an even share of so many tokens; 0: it does.");
  option(c, "defer_block_free", &CoreConfig::newer, &NewerOptions::defer_block_free,
         "vLLM 0.32.0: freed blocks go back when the steps that may write to them are over.");
  option(c, "drop_undelivered", &CoreConfig::newer, &NewerOptions::drop_undelivered,
         "vLLM 0.32.0: what is in flight for a preempted request is dropped.");
}

void bind_continuum(Class& c) {
  option(c, "pin_s", &CoreConfig::continuum, &ContinuumOptions::pin_s,
         "CONTINUUM: how long the blocks of a turn stay after its end, in seconds.");
  option(c, "longest_tool_s", &CoreConfig::continuum, &ContinuumOptions::longest_tool_s,
         "CONTINUUM: no pin for a tool that takes longer in the mean.");
  option(c, "max_jobs", &CoreConfig::continuum, &ContinuumOptions::max_jobs, "CONTINUUM: jobs remembered between turns.");
  option(c, "max_tools", &CoreConfig::continuum, &ContinuumOptions::max_tools, "CONTINUUM: tools whose times are remembered.");
  option(c, "pins_give_way", &CoreConfig::continuum, &ContinuumOptions::pins_give_way,
         "CONTINUUM: where blocks lack, pins end before anybody is preempted, or kept waiting while nobody runs; the oldest first.");
  option(c, "pins_end_with_job", &CoreConfig::continuum, &ContinuumOptions::pins_end_with_job,
         "CONTINUUM: a pin ends with its job's last step, an aborted turn, and a reset of the prefix cache.");
  option(c, "jobless_in_order", &CoreConfig::continuum, &ContinuumOptions::jobless_in_order,
         "CONTINUUM: requests without a job wait their turn, and no longer.");
}

void bind_cache(Class& c) {
  c.def_prop_rw(
      "num_blocks", [](const CoreConfig& self) { return self.kv.num_blocks; },
      [](CoreConfig& self, std::uint32_t blocks) { self.kv.num_blocks = blocks; }, "KV-cache blocks, the null block (id 0) included.");
  c.def_prop_rw(
      "groups", [](const CoreConfig& self) { return self.kv.groups; },
      [](CoreConfig& self, std::vector<KvCacheGroup> groups) { self.kv.groups = std::move(groups); }, "The cache groups of the model.");
  option(c, "block_size", &CoreConfig::block_size, "Tokens of a hashed block.");
  option(c, "cache_block_size", &CoreConfig::cache_block_size, "vLLM's cache_config.block_size; 0: block_size.");
  option(c, "enable_prefix_caching", &CoreConfig::prefix_cache, &PrefixCacheOptions::enable_prefix_caching,
         "Blocks of equal prefixes are shared.");
  option(c, "hash", &CoreConfig::prefix_cache, &PrefixCacheOptions::hash, "How blocks are named.");
  option(c, "hash_seed", &CoreConfig::prefix_cache, &PrefixCacheOptions::hash_seed, "Replicas with equal seeds name equal blocks alike.");
  c.def_prop_rw(
      "root_hash", [](const CoreConfig& self) { return nb::bytes(self.prefix_cache.root_hash.data(), self.prefix_cache.root_hash.size()); },
      [](CoreConfig& self, const nb::bytes& root) {
        const auto* data = static_cast<const std::uint8_t*>(root.data());
        self.prefix_cache.root_hash.assign(data, data + root.size());
      },
      "The parent of every first block (vLLM's NONE_HASH), instead of one made from the seed.");
  option(c, "retention_interval", &CoreConfig::prefix_cache, &PrefixCacheOptions::retention_interval,
         "Of windows, blocks are found at each multiple of so many tokens; 0: behind prompts only; -1: everywhere.");
  option(c, "lifo_free_blocks", &CoreConfig::prefix_cache, &PrefixCacheOptions::lifo_free_blocks,
         "Reuse the block that was freed last instead of the least recently used one.");
  option(c, "enable_kv_events", &CoreConfig::report, &ReportOptions::enable_kv_events, "Outcomes carry what happened to cached blocks.");
  option(c, "log_stats", &CoreConfig::report, &ReportOptions::log_stats, "Outcomes carry statistics and request events.");
  option(c, "kv_metrics_sample", &CoreConfig::report, &ReportOptions::kv_metrics_sample,
         "Share of blocks whose residency is measured, 0 to 1.");
  option(c, "mamba_align", &CoreConfig::mamba_align, "mamba_cache_mode is 'align'.");
}

void bind_pressure(Class& c) {
  option(c, "admission_watermark", &CoreConfig::pressure, &PressureOptions::admission_watermark,
         "Share of the blocks that an admission leaves free.");
  option(c, "pressure_high", &CoreConfig::pressure, &PressureOptions::pressure_high,
         "While more than this share of the blocks is referenced nobody is admitted; 0: off.");
  option(c, "pressure_low", &CoreConfig::pressure, &PressureOptions::pressure_low, "Until less than this share is.");
  option(c, "pressure_preempts", &CoreConfig::pressure, &PressureOptions::pressure_preempts,
         "Above pressure_high requests are preempted, too.");
}

void bind_engine(Class& c) {
  option(c, "max_outstanding_plans", &CoreConfig::limits, &CoreLimits::max_outstanding_plans,
         "Plans made and not yet applied: 1 synchronous, 2 asynchronous.");
  option(c, "num_spec_tokens", &CoreConfig::speculation, &SpeculationOptions::num_spec_tokens, "Draft tokens per step.");
  option(c, "num_lookahead_tokens", &CoreConfig::speculation, &SpeculationOptions::num_lookahead_tokens, "Block slots kept for them.");
  option(c, "use_eagle", &CoreConfig::speculation, &SpeculationOptions::use_eagle,
         "The last matched block is computed again, as EAGLE needs it.");
  option(c, "max_loras", &CoreConfig::limits, &CoreLimits::max_loras, "Adapters in one step; 0: no limit.");
  option(c, "max_encoder_tokens", &CoreConfig::encoder, &EncoderOptions::max_encoder_tokens, "Encoder embeddings computed per step.");
  option(c, "encoder_cache_size", &CoreConfig::encoder, &EncoderOptions::encoder_cache_size, "Encoder embeddings kept.");
  option(c, "is_encoder_decoder", &CoreConfig::encoder, &EncoderOptions::is_encoder_decoder,
         "The model has an encoder whose output the decoder attends to.");
  option(c, "disable_chunked_mm_input", &CoreConfig::encoder, &EncoderOptions::disable_chunked_mm_input,
         "A multimodal item is never split over steps.");
  option(c, "pipeline_parallel", &CoreConfig::parallel, &ParallelOptions::pipeline_parallel,
         "Plans carry the sampled tokens back to the first stage.");
  option(c, "dcp_world_size", &CoreConfig::parallel, &ParallelOptions::dcp_world_size, "Decode context parallelism.");
  option(c, "pcp_world_size", &CoreConfig::parallel, &ParallelOptions::pcp_world_size, "Prefill context parallelism.");
  option(c, "kv_load_failure", &CoreConfig::kv_load_failure, "What becomes of requests whose external blocks could not be loaded.");
  option(c, "include_finished_set", &CoreConfig::report, &ReportOptions::include_finished_set,
         "Outcomes list the requests that ended, per client.");
}

// One group of full attention where the caller named none: enough to step the scheduler by hand.
void default_group(CoreConfig& config) {
  FullAttentionSpec spec;
  spec.block_size = config.block_size;
  config.kv.groups.push_back({{"layer"}, spec, {}});
}

void init_config(nb::pointer_and_handle<CoreConfig> self, const nb::kwargs& options) {
  auto* config = new (self.p) CoreConfig();
  nb::inst_mark_ready(self.h);
  config->scheduler.async_scheduling = false;
  config->limits.max_outstanding_plans = 1;
  for (auto [name, value] : options) {
    if (!nb::hasattr(nb::type<CoreConfig>(), name))
      throw nb::type_error(("CoreConfig has no option '" + nb::cast<std::string>(name) + "'; dir(quire.CoreConfig) lists them").c_str());
    nb::setattr(self.h, name, value);
  }
  if (config->scheduler.async_scheduling && !options.contains("max_outstanding_plans")) config->limits.max_outstanding_plans = 2;
  if (!options.contains("groups")) default_group(*config);
}

}  // namespace

void bind_config(nb::module_& m) {
  bind_enums(m);
  Class c(m, "CoreConfig",
          "Every option of the core, without the groups that C++ has. Give at least num_blocks and max_model_len:\n\n"
          "    CoreConfig(num_blocks=64, block_size=16, max_model_len=1024, max_num_seqs=8)\n\n"
          "Unlike the C++ default, scheduling is synchronous unless async_scheduling=True is given.");
  c.def("__init__", [](nb::pointer_and_handle<CoreConfig> self, const nb::kwargs& options) { init_config(self, options); });
  bind_scheduling(c);
  bind_newer(c);
  bind_continuum(c);
  bind_pressure(c);
  bind_cache(c);
  bind_engine(c);
  c.def(
      "validate", [](const CoreConfig& self) { value_or_raise(self.validate()); },
      "Raises ValueError, naming the option and the remedy, when these options cannot be served.");
}

}  // namespace quire::python
