// Flags of the engine that several commands share. Called once, while the command line is described. Names follow vLLM's; a flag writes
// into the options it is given, which must live until the command has run.
#include "cli/flags/engine_flags.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <utility>

#include "cli/flags/choice_flag.h"
#include "cli/flags/speculation_flags.h"

namespace quire {

namespace {

constexpr std::array<std::pair<std::string_view, std::uint64_t>, 17> kUnits = {{
    {"", 1},
    {"B", 1},
    {"K", 1ULL << 10},
    {"KiB", 1ULL << 10},
    {"kB", 1000ULL},
    {"KB", 1000ULL},
    {"M", 1ULL << 20},
    {"MiB", 1ULL << 20},
    {"MB", 1000'000ULL},
    {"G", 1ULL << 30},
    {"GiB", 1ULL << 30},
    {"GB", 1000'000'000ULL},
    {"T", 1ULL << 40},
    {"TiB", 1ULL << 40},
    {"TB", 1000'000'000'000ULL},
    {"m", 1ULL << 20},
    {"g", 1ULL << 30},
}};

void add_cache_flags(CLI::App& app, CacheOptions& cache) {
  app.add_option("--kv-cache-memory", cache.kv_cache_bytes,
                 "Memory for the KV cache: 512MiB, 2GiB, ...; auto: four fifths of what the machine or cgroup has left beside the weights "
                 "(default 1GiB)")
      ->transform(bytes_flag());
  app.add_option("--num-blocks", cache.num_blocks, "Blocks of the KV cache, the null block included; 0: what --kv-cache-memory holds");
  app.add_option("--block-size", cache.block_size, "Tokens per block")->capture_default_str();
  add_choice<KvDtype>(app, "--kv-cache-dtype", cache.dtype,
                      "How keys and values are kept: bf16, f32 or int8 (default bf16); int8 takes half of bf16's memory and is less exact",
                      {{"bf16", KvDtype::bf16}, {"f32", KvDtype::f32}, {"int8", KvDtype::int8}});
  app.add_flag("--enable-prefix-caching,!--no-enable-prefix-caching", cache.enable_prefix_caching,
               "Keep full blocks after use and find them again by hash (default on)");
  add_choice<std::optional<MambaCacheMode>>(
      app, "--mamba-cache-mode", cache.mamba_cache_mode,
      "Of models whose layers have states: where these are kept. all: at the end of every block; align: where a prompt and its chunks end, "
      "which takes less memory; none: one per request, without prefix caching (default: all where a state is no larger than a block's keys "
      "and values, else align)",
      {{"all", MambaCacheMode::all}, {"align", MambaCacheMode::align}, {"none", MambaCacheMode::none}});
  add_choice<HashAlgorithm>(app, "--prefix-caching-hash-algo", cache.hash,
                            "How blocks are named: canonical (ours), or as vLLM names them: sha256, sha256_cbor, xxhash, xxhash_cbor "
                            "(xxhash: faster, but whoever tries can make two prompts of one name) (default canonical)",
                            {{"canonical", HashAlgorithm::canonical},
                             {"sha256", HashAlgorithm::sha256},
                             {"sha256_cbor", HashAlgorithm::sha256_cbor},
                             {"xxhash", HashAlgorithm::xxhash},
                             {"xxhash_cbor", HashAlgorithm::xxhash_cbor}});
  app.add_option("--prefix-caching-hash-seed", cache.hash_seed,
                 "What the names begin with, as vLLM's PYTHONHASHSEED: servers of one seed name equal blocks alike (default none)")
      ->type_name("TEXT");
  app.add_flag("--kv-lifo", cache.lifo_free_blocks,
               "Reuse the block that was freed last first, instead of the one unused longest: cached prefixes are forgotten sooner");
  app.add_flag(
      "--count-common-prefix,!--no-count-common-prefix", cache.count_common_prefix,
      "Count in each step the blocks that all requests began with, for /metrics and --trace; costs a look at every block of one of "
      "them (default off)");
}

void add_pressure_flags(CLI::App& app, EngineOptions& options) {
  app.add_option("--kv-watermark", options.pressure.admission_watermark,
                 "Share of the KV cache's blocks that admitting a request leaves free, so that running ones need not give way: 0.01, ... "
                 "(default 0)")
      ->type_name("SHARE");
  CLI::Option* const high = app.add_option("--kv-pressure-high", options.pressure.pressure_high,
                                           "While requests hold more than this share of the KV cache's blocks, admit nobody: 0.95, ... "
                                           "(default 0: off)")
                                ->type_name("SHARE");
  app.add_option("--kv-pressure-low", options.pressure.pressure_low, "Until they hold less than this share (default 0.8)")
      ->type_name("SHARE")
      ->needs(high);
  app.add_flag("--kv-pressure-preempt", options.pressure.pressure_preempts,
               "Above --kv-pressure-high, preempt those who were admitted last, too, until it is that or less; one request always runs "
               "(default off)")
      ->needs(high);
  app.add_option("--kv-swap", options.kv_swap.bytes,
                 "Memory beside the KV cache, for blocks of preempted requests: they go on where they were, if that is faster than "
                 "computing again (default 0: computed again)")
      ->transform(bytes_flag());
  add_choice<SwapChoice>(app, "--kv-swap-choice", options.kv_swap.choice,
                         "Who is swapped: measured, where it is faster than computing again, or always, whoever finds room (default "
                         "measured)",
                         {{"measured", SwapChoice::measured}, {"always", SwapChoice::always}});
  CLI::Option* const folder = app.add_option("--kv-swap-disk", options.kv_swap.folder,
                                             "The same, to files in this folder, which go with the process: where --kv-swap is full or not "
                                             "given")
                                  ->type_name("DIR");
  app.add_option("--kv-swap-disk-budget", options.kv_swap.folder_bytes, "Most that these files take (default 4GiB)")
      ->transform(bytes_flag())
      ->needs(folder);
  app.add_option("--max-forks", options.max_fork_family, "Open answers that descend from one by forks, itself among them")
      ->capture_default_str();
}

void add_weights_flags(CLI::App& app, WeightsOptions& weights) {
  add_choice<WeightQuantisation>(
      app, "--quantize", weights.quantise,
      "Make 8 bits (q8_0) or 4 (q4_k) of the matrices that the model has as floats, while it is loaded: less memory, faster, less exact. "
      "With --weights-cache once (default none)",
      {{"none", WeightQuantisation::none}, {"q8_0", WeightQuantisation::q8_0}, {"q4_k", WeightQuantisation::q4_k}});
  CLI::Option* const folder =
      app.add_option(
             "--weights-cache", weights.cache_folder,
             "Keep the weights as they are in memory in this folder, a file for each model: the next start reads them instead of packing "
             "the model again. Whoever can write to it can change what is served (default: not kept)")
          ->type_name("DIR");
  app.add_option("--weights-cache-budget", weights.cache_bytes,
                 "Most that its files take; those that were not used for longest go (default 64GiB)")
      ->transform(bytes_flag())
      ->needs(folder);
  app.add_option("--expert-memory", weights.expert_bytes,
                 "Memory for a mixture's experts: those that are used most stay, the others are read from --weights-cache when they are "
                 "wanted (default: all of them, or what half of the memory holds where they do not fit)")
      ->transform(bytes_flag())
      ->needs(folder);
}

}  // namespace

void add_continuum_flags(CLI::App& app, ContinuumOptions& continuum) {
  app.add_option("--continuum-pin", continuum.pin_s, "With --scheduling-policy continuum: seconds for which the blocks of a turn are kept")
      ->type_name("S")
      ->capture_default_str();
  app.add_option("--continuum-longest-tool", continuum.longest_tool_s,
                 "They are not kept for a tool that takes longer, in the mean, than so many seconds")
      ->type_name("S")
      ->capture_default_str();
  app.add_option("--continuum-max-jobs", continuum.max_jobs, "Jobs that are remembered between turns")->capture_default_str();
  app.add_option("--continuum-max-tools", continuum.max_tools, "Tools whose times are remembered")->capture_default_str();
}

void add_scheduler_flags(CLI::App& app, SchedulerOptions& scheduler) {
  app.add_option("--max-num-seqs", scheduler.max_num_seqs, "Requests that run at once")->capture_default_str();
  app.add_option("--max-num-batched-tokens", scheduler.max_num_batched_tokens, "Token budget of one step")->capture_default_str();
  app.add_option("--max-model-len", scheduler.max_model_len, "Longest prompt plus output, in tokens; 0: the model's context");
  app.add_option("--max-num-waiting", scheduler.max_num_waiting, "Waiting requests before clients get 429")->capture_default_str();
  app.add_option("--long-prefill-token-threshold", scheduler.long_prefill_token_threshold,
                 "Most prompt tokens of one request per step; 0: no limit");
  app.add_flag("--scheduler-reserve-full-isl,!--no-scheduler-reserve-full-isl", scheduler.reserve_full_isl,
               "Admit a request only when its whole prompt fits into the KV cache (default on)");
  app.add_flag("--enable-chunked-prefill,!--no-enable-chunked-prefill", scheduler.enable_chunked_prefill,
               "Compute a prompt over several steps where the budget asks for it (default on)");
  add_choice<SchedulingPolicy>(
      app, "--scheduling-policy", scheduler.policy,
      "Who goes first: fcfs, by arrival, or priority, by the request's \"priority\" (smaller first; when the KV "
      "cache is full, the largest gives way; requests of small priority that keep coming hold the others back for "
      "as long as they do), or continuum, by agent: the turns of one \"job_id\" together, their blocks kept for 2 s while "
      "a tool runs, until \"is_last_step\" (default fcfs)",
      {{"fcfs", SchedulingPolicy::fcfs}, {"priority", SchedulingPolicy::priority}, {"continuum", SchedulingPolicy::continuum}});
  app.add_flag("--async-scheduling,!--no-async-scheduling", scheduler.async_scheduling,
               "Plan the next step while one is computed; same answers, less waiting between steps (default on)");
}

Result<std::uint64_t> parse_bytes(std::string_view text) {
  double number = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  for (const auto& [name, factor] : kUnits)
    if (error == std::errc() && unit == name && number >= 0.0 && number * static_cast<double>(factor) < 9e18)
      return static_cast<std::uint64_t>(number * static_cast<double>(factor));
  return fail(ErrorCode::invalid_argument, "size", fmt::format("'{}' is not a size", text), "write 512MiB, 2GiB or a number of bytes");
}

std::string format_bytes(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 5> kNames = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t name = 0;
  while (value >= 1024.0 && name + 1 < kNames.size()) {
    value /= 1024.0;
    ++name;
  }
  return name == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {}", value, kNames[name]);
}

CLI::Validator bytes_flag() {
  return CLI::Validator(
      [](std::string& text) {
        const Result<std::uint64_t> bytes = text == "auto" ? Result<std::uint64_t>(0) : parse_bytes(text);
        if (!bytes.has_value()) return bytes.error().to_string();
        text = std::to_string(*bytes);
        return std::string();
      },
      "SIZE", "bytes");
}

void add_engine_flags(CLI::App& app, EngineOptions& options) {
  app.add_option("model", options.model, "A GGUF file or a Hugging Face folder")->required()->type_name("MODEL");
  app.add_option("--mmproj", options.mmproj,
                 "Beside a GGUF file: that of its encoder of pictures, which llama.cpp's converter calls mmproj"
                 " (SmolVLM, Gemma 3, Qwen2-VL, Qwen2.5-VL)")
      ->type_name("FILE");
  app.add_option("--served-model-name", options.served_model_name, "Name in the API (default: that of the file or folder)");
  add_cache_flags(app, options.cache);
  add_scheduler_flags(app, options.scheduler);
  add_continuum_flags(app, options.continuum);
  add_pressure_flags(app, options);
  add_speculation_flags(app, options);
  add_weights_flags(app, options.weights);
  // vLLM's command lines may have it. Not in --help: there is nothing to be had.
  app.add_flag_callback("--enable-prompt-embeds",
                        [] {
                          throw CLI::ValidationError(
                              "--enable-prompt-embeds",
                              "no worker here reads embeddings as a prompt; leave it out, and send text or token ids");
                        })
      ->group("");
  app.add_option("--threads", options.num_threads, "Compute threads; 0: one per core that this process may use (affinity, CPU quota)");
  app.add_option("--seed", options.seed, "For requests without a seed of their own")->capture_default_str();
  add_choice<ActivationMode>(
      app, "--activations", options.activations,
      "How 4- to 8-bit weights meet activations: int16, int8 (faster, less exact) or f32; bf16: how weights in bf16 do, "
      "faster and less exact than as floats (default int16)",
      {{"int16", ActivationMode::int16}, {"int8", ActivationMode::int8}, {"f32", ActivationMode::f32}, {"bf16", ActivationMode::bf16}});
  add_choice<KernelIsa>(
      app, "--isa", options.isa,
      "Kernels: best, reference, avx2, avx_vnni, avx512, avx512_bf16 or amx (x86), neon or neon_i8mm (ARM) (default best)",
      {{"best", KernelIsa::best},
       {"reference", KernelIsa::reference},
       {"avx2", KernelIsa::avx2},
       {"avx_vnni", KernelIsa::avx_vnni},
       {"avx512", KernelIsa::avx512},
       {"avx512_bf16", KernelIsa::avx512_bf16},
       {"amx", KernelIsa::amx},
       {"neon", KernelIsa::neon},
       {"neon_i8mm", KernelIsa::neon_i8mm}});
}

}  // namespace quire
