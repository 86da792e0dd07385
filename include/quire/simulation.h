#pragma once
// "What if": a workload is played, in virtual time, to the same core that serves, with a model of the worker's seconds in place of the
// worker (docs/simulate.md). Values, and functions without state: equal arguments give equal results. Called on any thread.
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/api.h"
#include "quire/base/error.h"
#include "quire/base/ids.h"
#include "quire/base/options.h"
#include "quire/lab/curve.h"

namespace quire {

// ---- the worker

// The sizes of a step that its duration depends on.
struct StepSizes {
  double prefill_tokens = 0.0;  // in parts of prompts of more than one token
  double decode_rows = 0.0;     // requests with one token
  double context_tokens = 0.0;  // that such rows attend to, summed
  double prefill_pairs = 0.0;   // of a token in a part of a prompt and a token that it attends to
};

// Seconds: host_s for the plan and the launch, then step_s and so much for each of the sizes. The defaults are about what an H100 takes
// for a dense model of 8 B parameters in bf16.
struct WorkerModel {
  double host_s = 0.0005;  // with asynchronous scheduling hidden behind the step before, where there is one
  double step_s = 0.0065;
  double prefill_token_s = 32e-6;
  double decode_row_s = 15e-6;
  double context_token_s = 50e-9;
  double prefill_pair_s = 1.3e-9;
  std::string source = "built-in example, about an H100 with an 8B model";

  [[nodiscard]] double seconds(const StepSizes& sizes) const {
    return step_s + prefill_token_s * sizes.prefill_tokens + decode_row_s * sizes.decode_rows + context_token_s * sizes.context_tokens +
           prefill_pair_s * sizes.prefill_pairs;
  }
};

// The small JSON file that `quire calibrate` writes. Errors name the file and the key.
QUIRE_API Result<WorkerModel> read_worker_model(const std::string& path);
QUIRE_API std::string worker_model_json(const WorkerModel& worker);

// ---- the workload

inline constexpr std::uint32_t kNoRequest = UINT32_MAX;

// Ids first, first + 1, ... of Workload::id_tokens tokens each.
struct IdRun {
  std::uint64_t first = 0;
  std::uint32_t count = 0;
};

struct WorkloadRequest {
  double start_s = 0.0;              // when it arrives; with `after`, so long after the end of that one
  std::uint32_t after = kNoRequest;  // index of an earlier request of the workload
  std::uint32_t session = 0;         // equal for the turns of one agent
  std::uint32_t prompt_tokens = 0, output_tokens = 0;
  // What its prompt is, for the prefix cache: runs of ids, or tokens (prompt_tokens of them), or neither: then it shares nothing.
  std::uint32_t first_run = 0, num_runs = 0;
  std::uint64_t first_token = 0;
  bool has_tokens = false;
  bool ends_session = false;
  // Equal ids are equal content only within a name space, but for the first `shared_ids`.
  std::uint32_t name_space = 0, shared_ids = 0;
};

// Two prompts share a prefix as long as their ids (or tokens) are equal from the first on.
struct Workload {
  std::string name;
  std::uint32_t id_tokens = 0;  // 0: no ids
  std::vector<WorkloadRequest> requests;
  std::vector<IdRun> runs;
  std::vector<TokenId> tokens;
  std::vector<std::string> notes;  // what a reader should know of how it was read
};

struct WorkloadOptions {
  std::string path{};              // .gz too, where this build has zlib
  std::string prompts{};           // of a vLLM run: the file with its prompts' tokens
  std::uint32_t max_requests = 0;  // the first so many; 0: all
  double rate_scale = 1.0;         // above 1: arrivals come closer together
  bool spread_bursts = false;      // arrivals of equal time are spread evenly up to the next time
  // Of files of sessions, which do not say when they began: so many agents (0: as many as there are sessions), each a session drawn with
  // `seed`, whose starts are uniform over ramp_s.
  std::uint32_t num_agents = 0;
  double ramp_s = 60.0;
  double max_think_s = 0.0;  // longer think times are cut to this; 0: none is
  std::uint64_t seed = 1;
};

// Which format it is, the file's first line says (docs/simulate.md lists them). Errors name the line. A journal is one, too.
QUIRE_API Result<Workload> read_workload(const WorkloadOptions& options);

// Poisson arrivals, log-normal lengths.
struct GeneratorOptions {
  std::uint32_t num_requests = 1000;
  double rate_per_s = 4.0;                              // infinity: all at once
  double input_tokens = 1000.0, output_tokens = 200.0;  // means
  double spread = 0.5;                                  // standard deviation over mean, of both lengths
  std::uint32_t shared_tokens = 0;                      // of the input, those of a common prefix
  std::uint32_t num_prefixes = 1;                       // of which there are so many
  std::uint64_t seed = 1;
};
// Errors name the option.
QUIRE_API Result<Workload> generate_workload(const GeneratorOptions& options);

// ---- the simulation

enum class Routing : std::uint8_t {
  round_robin,
  by_prefix,    // to who computed the longest known prefix, unless he has much more to do than the idlest
  least_loaded  // to who has the fewest open requests
};

// Memory beside each KV cache (docs/tiers.md), behind a link that moves one copy after the other each way. The core's own connector decides
// what is stored and loaded.
struct TierModel {
  std::uint64_t bytes = 0;       // for blocks that requests have left; 0: none
  std::uint64_t swap_bytes = 0;  // for blocks of preempted requests (docs/pressure.md); 0: they are computed again
  SwapChoice swap_choice = SwapChoice::measured;
  double load_bytes_per_s = 20e9, store_bytes_per_s = 20e9;
  double latency_s = 50e-6;             // of each copy, beside its bytes
  std::string eviction_policy = "lru";  // as parse_offload_policy
};

struct SimulationOptions {
  SchedulerOptions scheduler{.max_num_waiting = 1U << 20U};  // max_model_len 0: the workload's longest request
  PressureOptions pressure;
  ContinuumOptions continuum{.pins_give_way = true, .pins_end_with_job = true, .jobless_in_order = true};
  bool enable_prefix_caching = true;
  std::uint32_t block_size = 0;     // tokens; 0: the workload's ids, else 16
  std::uint32_t num_blocks = 0;     // of each instance, the null block included; 0: 400,000 tokens
  std::uint32_t num_instances = 1;  // each has a core, a worker and a cache of its own
  Routing routing = Routing::round_robin;
  TierModel tier;
  std::uint64_t kv_bytes_per_token = 131'072;  // what a token's keys and values take: an 8B model's in bf16; counts with a tier only
  WorkerModel worker;
  double slo_ttft_s = 0.0, slo_tpot_s = 0.0;  // goodput counts who keeps both; 0: any
  std::uint32_t curve_names = 0;              // CurveOptions::max_tracked of each instance; 0: no curve is drawn
};

struct RequestTimes {
  double arrival_s = 0.0, scheduled_s = -1.0, first_token_s = -1.0, last_token_s = -1.0;  // -1: never
  std::uint32_t prompt_tokens = 0, output_tokens = 0;
  std::uint32_t cached_tokens = 0;  // of the prompt, at its first admission
  std::uint32_t instance = 0;
  bool refused = false;
};

// Percentiles lie between two values in proportion, as numpy's do.
struct Distribution {
  std::uint64_t count = 0;
  double mean = 0.0, p50 = 0.0, p90 = 0.0, p99 = 0.0, max = 0.0;
};
QUIRE_API Distribution distribution_of(std::vector<double> values);

// All instances together, at a moment.
struct LoadSample {
  double time_s = 0.0;
  std::uint32_t num_running = 0, num_waiting = 0;
  double kv_usage = 0.0;  // share of blocks that requests hold
};

struct SimulationResult {
  std::vector<RequestTimes> requests;  // as in the workload
  std::vector<LoadSample> samples;     // at most 1,000, evenly spaced
  std::uint64_t num_finished = 0, num_refused = 0, num_stuck = 0;
  std::string first_refusal;                                              // why
  std::uint64_t prompt_tokens = 0, output_tokens = 0, cached_tokens = 0;  // of those that finished
  std::uint64_t computed_tokens = 0;                                      // by all steps, preempted work included
  std::uint64_t num_steps = 0, num_preemptions = 0, num_evicted_blocks = 0;
  // With a tier: prompt tokens that were loaded from it, bytes both ways, requests that were swapped out.
  std::uint64_t loaded_tokens = 0, loaded_bytes = 0, stored_bytes = 0, num_swapped_out = 0;
  double makespan_s = 0.0;                             // first arrival to last token
  Distribution ttft_s, tpot_s, end_to_end_s, queue_s;  // TPOT: of those with two tokens or more
  double goodput_per_s = 0.0, good_share = 0.0;        // requests that kept the SLO
  double kv_usage_mean = 0.0, kv_usage_peak = 0.0;     // over the time in which steps ran
  double busy_share = 0.0;                             // of all workers' time up to the makespan
  // Seconds of steps that began while requests waited, by what kept them waiting.
  double held_by_batch_s = 0.0, held_by_budget_s = 0.0, held_by_blocks_s = 0.0;
  std::optional<CacheCurve> curve;  // with SimulationOptions::curve_names: the instances' counts in one, sizes are those of each
};

// From 0 to 1, now and then, on the calling thread (a sweep: on any, one at a time).
using SimulationProgress = std::function<void(double)>;

// Errors name the option; among them a block size that does not fit the workload's ids. Requests that the core refuses (too long for its
// cache) are counted, not errors.
QUIRE_API Result<SimulationResult> simulate(const Workload& workload, const SimulationOptions& options,
                                            const SimulationProgress& progress = {});

// ---- sweeps

// "kv-blocks=1000,2000"
struct SweepAxis {
  std::string name;
  std::vector<std::string> values;
};
QUIRE_API Result<SweepAxis> parse_sweep_axis(std::string_view text);
// "kv-blocks, instances, ..."
QUIRE_API std::string sweep_axis_names();

struct SweepPoint {
  std::vector<std::string> values;  // one per axis
  SimulationOptions options;
};
// All combinations, the last axis fastest. Errors name the axis.
QUIRE_API Result<std::vector<SweepPoint>> sweep_points(const SimulationOptions& base, std::span<const SweepAxis> axes);
// Seconds of one core that the points may take, from short runs of the first requests.
QUIRE_API Result<double> estimate_sweep_s(const Workload& workload, std::span<const SweepPoint> points);
// In the order of the points, on so many threads.
QUIRE_API Result<std::vector<SimulationResult>> sweep(const Workload& workload, std::span<const SweepPoint> points,
                                                      std::uint32_t num_threads, const SimulationProgress& progress = {});

// ---- reports

QUIRE_API std::string simulation_table(const SimulationResult& result, const SimulationOptions& options);
QUIRE_API std::string simulation_json(const SimulationResult& result, const SimulationOptions& options);
// Queues, cache and distributions.
QUIRE_API std::string simulation_svg(const SimulationResult& result, std::string_view title);

QUIRE_API std::string sweep_table(std::span<const SweepAxis> axes, std::span<const SweepPoint> points,
                                  std::span<const SimulationResult> results);
QUIRE_API std::string sweep_json(std::span<const SweepAxis> axes, std::span<const SweepPoint> points,
                                 std::span<const SimulationResult> results);
QUIRE_API std::string sweep_svg(std::span<const SweepAxis> axes, std::span<const SweepPoint> points,
                                std::span<const SimulationResult> results);

// ---- calibration

struct FitReport {
  WorkerModel worker;
  std::uint64_t num_used = 0;      // steps, or requests
  double mean_error = 0.0;         // of what was fitted: mean of |model - measured| / measured
  std::vector<std::string> lines;  // for people
};

// From a trace of steps (docs/trace.md: PATH.steps.jsonl) or a journal (docs/journal.md): non-negative least squares on how long steps
// took.
QUIRE_API Result<FitReport> fit_worker_to_steps(const std::string& path);

// From what vLLM says of each request of a run: a search, through the simulator, for the worker that gives the times of the first
// `fit_share` of the requests. `options` says how vLLM was set up; its worker is where the search begins.
struct RunFitOptions {
  std::string requests{};  // requests.jsonl: arrival_time, queued_ts, scheduled_ts, first_token_ts, last_token_ts
  std::string prompts{};   // with input_tok_ids, line by line the same requests; empty: no prefix is shared
  double fit_share = 0.5;
  std::uint32_t max_rounds = 400;  // simulations
};
QUIRE_API Result<FitReport> fit_worker_to_run(const RunFitOptions& run, const SimulationOptions& options,
                                              const SimulationProgress& progress = {});

// Simulated against measured, of the requests that were not fitted.
struct ScoreLine {
  std::string what;
  double measured = 0.0, simulated = 0.0;
};
QUIRE_API Result<std::vector<ScoreLine>> score_run(const RunFitOptions& run, const SimulationOptions& options);

}  // namespace quire
