// EngineConfig: the options of an engine. The names are those of the flags of `quire serve`, with underscores.
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "engine/parts.h"

namespace quire::python {
namespace {

using Class = nb::class_<EngineConfig>;

// `get`: where the value lies in an EngineConfig.
template <class Get>
void option(Class& c, const char* name, Get get, const char* doc) {
  using T = std::remove_cvref_t<std::invoke_result_t<Get, EngineConfig&>>;
  c.def_prop_rw(
      name, [get](EngineConfig& self) -> T { return get(self); }, [get](EngineConfig& self, T value) { get(self) = std::move(value); },
      doc);
}

// One of a few words.
template <class Get, std::size_t kNum>
void choice(Class& c, const char* name, Get get, std::array<const char*, kNum> words, const char* doc) {
  using T = std::remove_cvref_t<std::invoke_result_t<Get, EngineConfig&>>;
  c.def_prop_rw(
      name, [=](EngineConfig& self) { return std::string(words.at(static_cast<std::size_t>(get(self)))); },
      [=](EngineConfig& self, const std::string& word) {
        const auto found = std::ranges::find(words, std::string_view(word));
        std::string known;
        for (const char* one : words) known += (known.empty() ? "" : ", ") + std::string(one);
        if (found == words.end()) throw nb::value_error((std::string(name) + ": is '" + word + "'; give one of " + known).c_str());
        get(self) = static_cast<T>(found - words.begin());
      },
      doc);
}

// Empty: what suits the model.
void bind_states(Class& c) {
  static constexpr std::array kWords = {"none", "all", "align"};  // in the order of MambaCacheMode
  c.def_prop_rw(
      "mamba_cache_mode",
      [](EngineConfig& self) {
        const auto mode = self.engine.cache.mamba_cache_mode;
        return mode ? std::string(kWords.at(static_cast<std::size_t>(*mode))) : std::string();
      },
      [](EngineConfig& self, const std::string& word) {
        const auto found = std::ranges::find(kWords, std::string_view(word));
        if (found == kWords.end() && !word.empty())
          throw nb::value_error(("mamba_cache_mode: is '" + word + "'; give one of none, all, align, or nothing").c_str());
        self.engine.cache.mamba_cache_mode.reset();
        if (!word.empty()) self.engine.cache.mamba_cache_mode = static_cast<MambaCacheMode>(found - kWords.begin());
      },
      "Where states of layers are kept: none, all or align; empty: as it suits the model.");
}

void bind_cache(Class& c) {
  option(
      c, "kv_cache_memory", [](EngineConfig& o) -> auto& { return o.engine.cache.kv_cache_bytes; }, "Bytes; 0: what the machine has left.");
  option(c, "num_blocks", [](EngineConfig& o) -> auto& { return o.engine.cache.num_blocks; }, "0: as many as kv_cache_memory holds.");
  option(c, "block_size", [](EngineConfig& o) -> auto& { return o.engine.cache.block_size; }, "Tokens per block.");
  choice(
      c, "kv_cache_dtype", [](EngineConfig& o) -> auto& { return o.engine.cache.dtype; }, std::array{"bf16", "f32", "int8"},
      "Of keys and values.");
  option(
      c, "enable_prefix_caching", [](EngineConfig& o) -> auto& { return o.engine.cache.enable_prefix_caching; }, "Blocks are found again.");
  choice(
      c, "prefix_caching_hash_algo", [](EngineConfig& o) -> auto& { return o.engine.cache.hash; },
      std::array{"canonical", "sha256", "sha256_cbor", "xxhash", "xxhash_cbor"}, "How blocks are named.");
  option(c, "prefix_caching_hash_seed", [](EngineConfig& o) -> auto& { return o.engine.cache.hash_seed; }, "What the names begin with.");
  option(c, "kv_lifo", [](EngineConfig& o) -> auto& { return o.engine.cache.lifo_free_blocks; }, "Reuse the block freed last first.");
  option(
      c, "count_common_prefix", [](EngineConfig& o) -> auto& { return o.engine.cache.count_common_prefix; },
      "The trace tells what all requests of a step begin with.");
}

void bind_scheduler(Class& c) {
  option(c, "max_num_seqs", [](EngineConfig& o) -> auto& { return o.engine.scheduler.max_num_seqs; }, "Requests that run at once.");
  option(c, "max_num_batched_tokens", [](EngineConfig& o) -> auto& { return o.engine.scheduler.max_num_batched_tokens; }, "Of one step.");
  option(c, "max_model_len", [](EngineConfig& o) -> auto& { return o.engine.scheduler.max_model_len; }, "0: the model's context.");
  option(c, "max_num_waiting", [](EngineConfig& o) -> auto& { return o.engine.scheduler.max_num_waiting; }, "More are refused.");
  option(
      c, "long_prefill_token_threshold", [](EngineConfig& o) -> auto& { return o.engine.scheduler.long_prefill_token_threshold; },
      "Most prompt tokens of one request per step; 0: no limit.");
  option(
      c, "scheduler_reserve_full_isl", [](EngineConfig& o) -> auto& { return o.engine.scheduler.reserve_full_isl; },
      "Admit a request only when its whole prompt fits.");
  option(
      c, "enable_chunked_prefill", [](EngineConfig& o) -> auto& { return o.engine.scheduler.enable_chunked_prefill; },
      "A prompt may be spread over steps.");
  choice(
      c, "scheduling_policy", [](EngineConfig& o) -> auto& { return o.engine.scheduler.policy; },
      std::array{"fcfs", "priority", "continuum"}, "Who goes first.");
  option(
      c, "async_scheduling", [](EngineConfig& o) -> auto& { return o.engine.scheduler.async_scheduling; },
      "The next step is planned while one is computed.");
  option(c, "continuum_pin", [](EngineConfig& o) -> auto& { return o.engine.continuum.pin_s; }, "Seconds that a turn's blocks stay.");
  option(c, "continuum_longest_tool", [](EngineConfig& o) -> auto& { return o.engine.continuum.longest_tool_s; }, "Seconds.");
  option(c, "continuum_max_jobs", [](EngineConfig& o) -> auto& { return o.engine.continuum.max_jobs; }, "Remembered between turns.");
  option(c, "continuum_max_tools", [](EngineConfig& o) -> auto& { return o.engine.continuum.max_tools; }, "Whose times are remembered.");
  option(c, "max_forks", [](EngineConfig& o) -> auto& { return o.engine.max_fork_family; }, "Open answers that descend from one by forks.");
  option(
      c, "num_speculative_tokens", [](EngineConfig& o) -> auto& { return o.engine.speculation.num_speculative_tokens; },
      "0: off, or 4 with speculative_model.");
  option(
      c, "speculative_model", [](EngineConfig& o) -> auto& { return o.engine.draft_model; },
      "A smaller one that makes drafts; empty: none.");
  option(c, "prompt_lookup_min", [](EngineConfig& o) -> auto& { return o.engine.speculation.prompt_lookup_min; }, "For drafts, at least.");
  option(c, "prompt_lookup_max", [](EngineConfig& o) -> auto& { return o.engine.speculation.prompt_lookup_max; }, "For drafts, at most.");
}

void bind_adapters(Class& c) {
  option(c, "enable_lora", [](EngineConfig& o) -> auto& { return o.enable_lora; }, "Serve LoRA adapters beside the model.");
  option(c, "max_loras", [](EngineConfig& o) -> auto& { return o.max_loras; }, "Different adapters in one step.");
  option(c, "max_lora_rank", [](EngineConfig& o) -> auto& { return o.engine.adapters.max_lora_rank; }, "Of a higher rank none is loaded.");
  option(
      c, "max_cpu_loras", [](EngineConfig& o) -> auto& { return o.engine.adapters.max_cpu_loras; },
      "Adapters in memory; 0: max_loras, the modules or 4, whichever is most.");
  option(c, "lora_modules", [](EngineConfig& o) -> auto& { return o.lora_modules; }, "Folders by name, loaded at the start.");
}

void bind_pressure(Class& c) {
  option(
      c, "kv_watermark", [](EngineConfig& o) -> auto& { return o.engine.pressure.admission_watermark; },
      "Share of the blocks that an admission leaves free.");
  option(
      c, "kv_pressure_high", [](EngineConfig& o) -> auto& { return o.engine.pressure.pressure_high; },
      "Above this share nobody is admitted; 0: off.");
  option(c, "kv_pressure_low", [](EngineConfig& o) -> auto& { return o.engine.pressure.pressure_low; }, "Until it is below this one.");
  option(
      c, "kv_pressure_preempt", [](EngineConfig& o) -> auto& { return o.engine.pressure.pressure_preempts; },
      "Above kv_pressure_high requests are preempted, too.");
  option(c, "kv_swap", [](EngineConfig& o) -> auto& { return o.engine.kv_swap.bytes; }, "Bytes for blocks of preempted requests.");
  choice(
      c, "kv_swap_choice", [](EngineConfig& o) -> auto& { return o.engine.kv_swap.choice; }, std::array{"off", "always", "measured"},
      "Who is swapped.");
  option(
      c, "mmproj", [](EngineConfig& o) -> auto& { return o.engine.mmproj; },
      "Beside a GGUF file: that of its encoder of pictures, as llama.cpp's converter makes it.");
  choice(
      c, "quantize", [](EngineConfig& o) -> auto& { return o.engine.weights.quantise; }, std::array{"none", "q8_0", "q4_k"},
      "What becomes of the matrices that the model has as floats.");
  option(
      c, "weights_cache", [](EngineConfig& o) -> auto& { return o.engine.weights.cache_folder; },
      "A folder that keeps packed weights between starts.");
  option(c, "weights_cache_budget", [](EngineConfig& o) -> auto& { return o.engine.weights.cache_bytes; }, "Bytes.");
  option(
      c, "expert_memory", [](EngineConfig& o) -> auto& { return o.engine.weights.expert_bytes; },
      "Bytes for the experts of a mixture; the others are read from weights_cache when they are wanted.");
  option(c, "kv_swap_disk", [](EngineConfig& o) -> auto& { return o.engine.kv_swap.folder; }, "A folder for the same.");
  option(c, "kv_swap_disk_budget", [](EngineConfig& o) -> auto& { return o.engine.kv_swap.folder_bytes; }, "Bytes.");
}

void bind_tiers(Class& c) {
  option(c, "kv_dram", [](EngineConfig& o) -> auto& { return o.kv_dram.bytes; }, "Bytes of host memory for KV blocks; 0: no tier.");
  option(c, "kv_disk", [](EngineConfig& o) -> auto& { return o.kv_disk.folder; }, "A folder for KV blocks; empty: no tier.");
  option(c, "kv_disk_budget", [](EngineConfig& o) -> auto& { return o.kv_disk.budget_bytes; }, "Bytes; 0: a quarter of what is free.");
  option(
      c, "kv_remote", [](EngineConfig& o) -> auto& { return o.kv_remote.address; },
      "A store that servers share, redis://, rediss:// or unix://; empty: no tier.");
  option(c, "kv_remote_key", [](EngineConfig& o) -> auto& { return o.kv_remote.key_file; }, "A file of the bytes that sign its values.");
  option(c, "kv_remote_ca", [](EngineConfig& o) -> auto& { return o.kv_remote.ca_file; }, "Certificates to check it against.");
  option(c, "kv_remote_budget", [](EngineConfig& o) -> auto& { return o.kv_remote.budget_bytes; }, "Bytes stored there; 0: 16 GiB.");
  option(c, "kv_remote_ttl", [](EngineConfig& o) -> auto& { return o.kv_remote.ttl_s; }, "Seconds until what nobody uses is forgotten.");
  choice(
      c, "kv_load_failure_policy", [](EngineConfig& o) -> auto& { return o.engine.kv_load_failure; }, std::array{"fail", "recompute"},
      "What becomes of requests whose blocks could not be loaded.");
}

void bind_machine(Class& c) {
  option(c, "threads", [](EngineConfig& o) -> auto& { return o.engine.num_threads; }, "Of the computation; 0: one per core.");
  option(c, "seed", [](EngineConfig& o) -> auto& { return o.engine.seed; }, "For requests without a seed of their own.");
  choice(
      c, "activations", [](EngineConfig& o) -> auto& { return o.engine.activations; }, std::array{"int16", "f32", "int8", "bf16"},
      "How weights meet activations; bf16 is for weights in bf16.");
  choice(
      c, "isa", [](EngineConfig& o) -> auto& { return o.engine.isa; },
      std::array{"best", "reference", "avx2", "avx_vnni", "avx512", "avx512_bf16", "amx", "neon", "neon_i8mm"}, "Kernels.");
  option(c, "trace", [](EngineConfig& o) -> auto& { return o.engine.trace.path; }, "PATH of the record of each step; empty: none.");
  option(c, "trace_every", [](EngineConfig& o) -> auto& { return o.engine.trace.every; }, "Only every n-th step.");
  option(c, "trace_max_steps", [](EngineConfig& o) -> auto& { return o.engine.trace.max_steps; }, "0: no limit.");
  option(c, "trace_file_bytes", [](EngineConfig& o) -> auto& { return o.engine.trace.max_file_bytes; }, "Largest file.");
  option(c, "trace_files", [](EngineConfig& o) -> auto& { return o.engine.trace.max_files; }, "Of each kind.");
  option(c, "journal", [](EngineConfig& o) -> auto& { return o.engine.journal.folder; }, "A folder for journals; empty: none.");
  option(c, "journal_max_bytes", [](EngineConfig& o) -> auto& { return o.engine.journal.max_bytes; }, "Of all journals in it.");
  option(
      c, "journal_memory", [](EngineConfig& o) -> auto& { return o.engine.journal.memory_bytes; },
      "Bytes for the last minutes of the same in memory; 0: none are kept.");
  option(
      c, "journal_save", [](EngineConfig& o) -> auto& { return o.engine.journal.save_folder; },
      "Where save_journal() writes them; empty: journal.");
  option(
      c, "journal_tokens", [](EngineConfig& o) -> auto& { return o.engine.journal.tokens; },
      "False: what prompts and answers say is left out.");
}

}  // namespace

void bind_engine_config(nb::module_& m) {
  Class c(m, "EngineConfig", "The options of an engine: the flags of `quire serve`, with underscores. Its help says what each does.");
  c.def("__init__", [](nb::pointer_and_handle<EngineConfig> self, const nb::kwargs& options) {
    new (self.p) EngineConfig();
    nb::inst_mark_ready(self.h);
    set_all<EngineConfig>(self.h, options, "EngineConfig");
  });
  bind_cache(c);
  bind_states(c);
  bind_scheduler(c);
  bind_adapters(c);
  bind_pressure(c);
  bind_tiers(c);
  bind_machine(c);
}

}  // namespace quire::python
