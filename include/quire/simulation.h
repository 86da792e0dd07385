#pragma once
// Simulates a workload in virtual time on the core that also serves, with a model of the worker's step times (docs/simulate.md). All
// functions are stateless: equal arguments give equal results. They may be called on any thread.
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

// The sizes of a step that determine its duration.
struct StepSizes {
  double prefill_tokens = 0.0;  // tokens in prompt chunks of more than one token
  double decode_rows = 0.0;     // requests with one token in this step
  double context_tokens = 0.0;  // total number of tokens to which these rows attend
  double prefill_pairs = 0.0;   // pairs of a token in a prompt chunk and a token to which it attends
};

// Model of step times in seconds: `host_s` for planning and launching a step, then `step_s` plus one term per size. The defaults
// approximate an H100 with a dense bf16 model of 8 B parameters.
struct WorkerModel {
  double host_s = 0.0005;  // with asynchronous scheduling this time overlaps the previous step, if there is one
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

// Read a worker model from the JSON file that `quire calibrate` writes, and return the text of such a file. Errors name the file and the
// key.
QUIRE_API Result<WorkerModel> read_worker_model(const std::string& path);
QUIRE_API std::string worker_model_json(const WorkerModel& worker);

// ---- the workload

inline constexpr std::uint32_t kNoRequest = UINT32_MAX;

// Consecutive ids first, first + 1, ... Each id represents Workload::id_tokens tokens.
struct IdRun {
  std::uint64_t first = 0;
  std::uint32_t count = 0;
};

// One request of a workload: arrival, lengths, and content for the prefix cache.
struct WorkloadRequest {
  double start_s = 0.0;              // arrival time; with `after`: time after the end of that request
  std::uint32_t after = kNoRequest;  // index of an earlier request of the workload
  std::uint32_t session = 0;         // number of the agent's session; equal for all turns of the session
  std::uint32_t prompt_tokens = 0, output_tokens = 0;
  // Content of the prompt: either runs of ids, or `prompt_tokens` token ids, or neither. A prompt without content shares no prefix.
  std::uint32_t first_run = 0, num_runs = 0;
  std::uint64_t first_token = 0;
  bool has_tokens = false;
  bool ends_session = false;
  // Ids below `shared_ids` have the same content in all requests. Other equal ids have the same content only if `name_space` is equal.
  std::uint32_t name_space = 0, shared_ids = 0;
};

// Requests to simulate. Two prompts share the prefix in which their ids (or tokens) are equal.
struct Workload {
  std::string name;
  std::uint32_t id_tokens = 0;  // 0: no ids
  std::vector<WorkloadRequest> requests;
  std::vector<IdRun> runs;
  std::vector<TokenId> tokens;
  std::vector<std::string> notes;  // remarks for the user about how the file was read
};

// Which workload file to read, and how to change it.
struct WorkloadOptions {
  std::string path{};              // also .gz, if this build has zlib
  std::string prompts{};           // for a vLLM run: the file with the prompts' tokens
  std::uint32_t max_requests = 0;  // only the first requests; 0: all
  double rate_scale = 1.0;         // factor of the arrival rate; above 1, arrivals are closer together
  bool spread_bursts = false;      // spread requests with equal times evenly until the next time
  // For files of sessions without start times: the number of agents (0: one per session). Each agent plays a session that is drawn with
  // `seed`, and starts at a uniformly distributed time within `ramp_s`.
  std::uint32_t num_agents = 0;
  double ramp_s = 60.0;
  double max_think_s = 0.0;  // think times are reduced to at most this value; 0: no limit
  std::uint64_t seed = 1;
};

// Reads a workload. The first line of the file determines its format (docs/simulate.md); a journal is also accepted. Errors name the line.
QUIRE_API Result<Workload> read_workload(const WorkloadOptions& options);

// Options of a synthetic workload: Poisson arrivals, log-normal lengths.
struct GeneratorOptions {
  std::uint32_t num_requests = 1000;
  double rate_per_s = 4.0;                              // infinity: all requests arrive at the same time
  double input_tokens = 1000.0, output_tokens = 200.0;  // means
  double spread = 0.5;                                  // standard deviation divided by mean, of both lengths
  std::uint32_t shared_tokens = 0;                      // input tokens in a common prefix
  std::uint32_t num_prefixes = 1;                       // number of different prefixes
  std::uint64_t seed = 1;
};
// Returns a synthetic workload. Errors name the option.
QUIRE_API Result<Workload> generate_workload(const GeneratorOptions& options);

// ---- the simulation

// How requests are distributed over instances.
enum class Routing : std::uint8_t {
  round_robin,
  by_prefix,    // the instance with the longest known prefix, unless it has far more open requests than others
  least_loaded  // the instance with the fewest open requests
};

// Model of a tier in host memory next to each KV cache (docs/tiers.md), with a link that makes one copy at a time in each direction. The
// core's connector decides what is stored and loaded, as in an engine.
struct TierModel {
  std::uint64_t bytes = 0;       // bytes for blocks of ended requests; 0: no tier
  std::uint64_t swap_bytes = 0;  // bytes for blocks of preempted requests (docs/pressure.md); 0: they are recomputed
  SwapChoice swap_choice = SwapChoice::measured;
  double load_bytes_per_s = 20e9, store_bytes_per_s = 20e9;
  double latency_s = 50e-6;             // added to the time of each copy
  std::string eviction_policy = "lru";  // see parse_offload_policy()
};

// Options of the simulated deployment.
struct SimulationOptions {
  SchedulerOptions scheduler{.max_num_waiting = 1U << 20U};  // max_model_len 0: the workload's longest request
  PressureOptions pressure;
  ContinuumOptions continuum{.pins_give_way = true, .pins_end_with_job = true, .jobless_in_order = true};
  bool enable_prefix_caching = true;
  double slru_share = 0.0;          // PrefixCacheOptions::slru_share
  std::uint32_t block_size = 0;     // tokens; 0: the workload's `id_tokens`, or 16
  std::uint32_t num_blocks = 0;     // per instance, with the null block; 0: 400,000 tokens
  std::uint32_t num_instances = 1;  // number of instances, each with a separate core, worker and cache
  Routing routing = Routing::round_robin;
  TierModel tier;
  std::uint64_t kv_bytes_per_token = 131'072;  // bytes of keys and values per token, as of an 8B model in bf16; used only with a tier
  WorkerModel worker;
  double slo_ttft_s = 0.0, slo_tpot_s = 0.0;  // goodput counts requests that meet both; 0: no limit
  std::uint32_t curve_max_tracked = 0;        // `CurveOptions::max_tracked` of each instance; 0: no curve
};

// Times of one simulated request.
struct RequestTimes {
  double arrival_s = 0.0, scheduled_s = -1.0, first_token_s = -1.0, last_token_s = -1.0;  // -1: never
  std::uint32_t prompt_tokens = 0, output_tokens = 0;
  std::uint32_t cached_tokens = 0;  // prompt tokens found at first admission
  std::uint32_t instance = 0;
  bool refused = false;
};

// Statistics of values. Percentiles are interpolated linearly, as in numpy.
struct Distribution {
  std::uint64_t count = 0;
  double mean = 0.0, p50 = 0.0, p90 = 0.0, p99 = 0.0, max = 0.0;
};
// Returns the statistics of `values`.
QUIRE_API Distribution distribution_of(std::vector<double> values);

// The load of all instances together at one time.
struct LoadSample {
  double time_s = 0.0;
  std::uint32_t num_running = 0, num_waiting = 0;
  double kv_usage = 0.0;  // fraction of blocks that requests hold
};

struct SimulationResult {
  std::vector<RequestTimes> requests;  // in the workload's order
  std::vector<LoadSample> samples;     // at most 1,000, evenly spaced
  std::uint64_t num_finished = 0, num_refused = 0, num_stuck = 0;
  std::string first_refusal;                                              // error message of the first rejected request
  std::uint64_t prompt_tokens = 0, output_tokens = 0, cached_tokens = 0;  // totals of finished requests
  std::uint64_t computed_tokens = 0;                                      // tokens computed by all steps, including work lost to preemption
  std::uint64_t num_steps = 0, num_preemptions = 0, num_evicted_blocks = 0;
  // With a tier: prompt tokens loaded from the tier, bytes loaded and stored, and requests swapped out.
  std::uint64_t loaded_tokens = 0, loaded_bytes = 0, stored_bytes = 0, num_swapped_out = 0;
  double makespan_s = 0.0;                             // from first arrival to last token
  Distribution ttft_s, tpot_s, end_to_end_s, queue_s;  // TPOT: requests with two or more output tokens
  double goodput_per_s = 0.0, good_share = 0.0;        // requests within the SLO
  double kv_usage_mean = 0.0, kv_usage_peak = 0.0;     // mean and maximum while steps ran
  double busy_share = 0.0;                             // fraction of the workers' time until the makespan in which they computed
  // Total time of steps that began while requests waited, in seconds, by the reason for waiting.
  double held_by_batch_s = 0.0, held_by_budget_s = 0.0, held_by_blocks_s = 0.0;
  std::optional<HitRateCurve> curve;  // with `SimulationOptions::curve_max_tracked`: sum over the instances; cache sizes are per instance
};

// Receives the progress from 0 to 1, on the calling thread. During a sweep it is called on any thread, one call at a time.
using SimulationProgress = std::function<void(double)>;

// Simulates the workload. Errors name the option, for instance a block size that does not fit the workload's ids. A request that the core
// rejects (for instance, too long for its cache) is counted and is no error.
QUIRE_API Result<SimulationResult> simulate(const Workload& workload, const SimulationOptions& options,
                                            const SimulationProgress& progress = {});

// ---- sweeps

// An option and the values to simulate. parse_sweep_axis() reads a text such as "kv-blocks=1000,2000".
struct SweepAxis {
  std::string name;
  std::vector<std::string> values;
};
QUIRE_API Result<SweepAxis> parse_sweep_axis(std::string_view text);
// Returns the names of all options that can be swept, as text: "kv-blocks, instances, ..."
QUIRE_API std::string sweep_axis_names();

// One combination of axis values.
struct SweepPoint {
  std::vector<std::string> values;  // one per axis
  SimulationOptions options;
};
// Returns all combinations of the axes' values; the value of the last axis changes fastest. Errors name the axis.
QUIRE_API Result<std::vector<SweepPoint>> sweep_points(const SimulationOptions& base, std::span<const SweepAxis> axes);
// Returns the estimated CPU time for all points, in seconds. The estimate simulates the first requests of the workload at the first and the
// last point.
QUIRE_API Result<double> estimate_sweep_s(const Workload& workload, std::span<const SweepPoint> points);
// Simulates all points on `num_threads` threads. Results are in the order of the points.
QUIRE_API Result<std::vector<SimulationResult>> sweep(const Workload& workload, std::span<const SweepPoint> points,
                                                      std::uint32_t num_threads, const SimulationProgress& progress = {});

// ---- reports

// Return the result of simulate() as a text table, and as JSON.
QUIRE_API std::string simulation_table(const SimulationResult& result, const SimulationOptions& options);
QUIRE_API std::string simulation_json(const SimulationResult& result, const SimulationOptions& options);

// Return the results of a sweep as a text table, and as JSON.
QUIRE_API std::string sweep_table(std::span<const SweepAxis> axes, std::span<const SweepPoint> points,
                                  std::span<const SimulationResult> results);
QUIRE_API std::string sweep_json(std::span<const SweepAxis> axes, std::span<const SweepPoint> points,
                                 std::span<const SimulationResult> results);

// ---- calibration

// The result of a calibration.
struct FitReport {
  WorkerModel worker;
  std::uint64_t num_used = 0;      // number of steps, or of requests, that were fitted
  double mean_error = 0.0;         // mean of |model - measured| / measured over the fitted values
  std::vector<std::string> lines;  // report lines for the user
};

// Fits a worker model to measured step durations by non-negative least squares. `path` is a step trace (docs/trace.md: PATH.steps.jsonl) or
// a journal (docs/journal.md).
QUIRE_API Result<FitReport> fit_worker_to_steps(const std::string& path);

// Files with measurements of a vLLM run. fit_worker_to_run() searches for the worker model with which a simulation reproduces the times of
// the first `fit_share` of the requests. Its `options` describe vLLM's setup; the search starts at their worker model.
struct RunFitOptions {
  std::string requests{};  // requests.jsonl: arrival_time, queued_ts, scheduled_ts, first_token_ts, last_token_ts
  std::string prompts{};   // file with input_tok_ids, one request per line as in `requests`; empty: no shared prefixes
  double fit_share = 0.5;
  std::uint32_t max_rounds = 400;  // maximum number of simulations
};
// Fits a worker model to a vLLM run. Errors name the file or the option.
QUIRE_API Result<FitReport> fit_worker_to_run(const RunFitOptions& run, const SimulationOptions& options,
                                              const SimulationProgress& progress = {});

// A measured and a simulated value, over the requests that were not used for the fit.
struct ScoreLine {
  std::string what;
  double measured = 0.0, simulated = 0.0;
};
// Compares a simulation of the whole run with the measurements. Returns lines for makespan, TTFT and TPOT. Errors name the file or the
// option.
QUIRE_API Result<std::vector<ScoreLine>> score_run(const RunFitOptions& run, const SimulationOptions& options);

}  // namespace quire
