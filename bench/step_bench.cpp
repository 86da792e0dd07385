// Measures the parts of a step's time: step_bench MODEL [CONCURRENCY,...] [PROMPT TOKENS] [OUTPUT TOKENS] [CHUNK TOKENS]
// default: 1,8,64 128 64 0. A prompt is computed in chunks of at most CHUNK TOKENS; 0: only the step limits the chunk.
// An engine with timed kernels gets CONCURRENCY concurrent requests. For each number it prints a table of the time of prefill (until all
// requests have their first token) and of decode, in percent of the time of all threads. Rows of products and attention also show the share
// that this work would take at the machine's limits, which are measured in the same run: the memory bandwidth of all threads, and products
// with weights in the L1 cache. The cost of timing is printed, too.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "base/usable_cores.h"
#include "cli/output_queue.h"
#include "engine/engine_parts.h"
#include "engine/kv_plan.h"
#include "engine/resolve_options.h"
#include "huge_memory.h"
#include "runtime/kernel/aligned.h"
#include "runtime/kernel/kernel.h"
#include "runtime/memory/kv_cache.h"
#include "runtime/model/model.h"
#include "runtime/worker/worker.h"

namespace {

using namespace quire;  // NOLINT(google-build-using-namespace): a program
using Clock = std::chrono::steady_clock;

enum class Part : std::uint8_t { products, logits, attention, prepare, norms, rotation, gates, write_kv, residuals, states };
constexpr std::size_t kNumParts = 10;
constexpr std::array<const char*, kNumParts> kPartNames = {
    "products of layers", "logits",          "attention",  "inputs to integers", "norms",
    "rotation",           "gates of layers", "KV written", "residuals, biases",  "states"};

// Counters of one thread; other threads read them while the thread counts.
struct alignas(64) Tally {
  std::array<std::atomic<std::uint64_t>, kNumParts> ns{}, calls{}, bytes{}, operations{};
};
std::array<Tally, 256> all_tallies;  // NOLINT: kernels are plain functions, so the tallies must be global
std::atomic<std::size_t> num_tallies;
const Kernels* inner = nullptr;  // NOLINT: the same
std::uint32_t vocab_size = 0;    // NOLINT: the same

Tally& own_tally() {
  thread_local Tally& tally = all_tallies.at(num_tallies.fetch_add(1));
  return tally;
}

void add(std::atomic<std::uint64_t>& to, std::uint64_t more) {
  to.store(to.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
}

template <class Call>
void timed(Part part, Call call, std::uint64_t bytes = 0, std::uint64_t operations = 0) {
  const Clock::time_point begin = Clock::now();
  call();
  const auto at = static_cast<std::size_t>(part);
  Tally& tally = own_tally();
  add(tally.ns[at], static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count()));
  add(tally.calls[at], 1);
  add(tally.bytes[at], bytes);
  add(tally.operations[at], operations);
}

// Wraps one function of the kernel table, and adds its time to a part.
template <Part kPart, auto kMember>
struct Timed;
template <Part kPart, class... Arguments, void (*Kernels::*kMember)(Arguments...)>
struct Timed<kPart, kMember> {
  static void call(Arguments... arguments) {
    timed(kPart, [&] { (inner->*kMember)(arguments...); });
  }
};

void timed_matmul(const PackedMatrix& w, const Activations& x, float* y, std::size_t y_stride, std::uint32_t begin, std::uint32_t end) {
  const std::uint64_t outputs = std::uint64_t{end - begin} * kPanelRows;
  timed(
      w.rows == vocab_size ? Part::logits : Part::products, [&] { inner->matmul(w, x, y, y_stride, begin, end); },
      (end - begin) * w.panel_bytes * ((x.rows + 63) / 64), outputs * w.columns * x.rows);
}

template <Part kPart, auto kMember>
void time_it(Kernels& table) {
  table.*kMember = Timed<kPart, kMember>::call;
}

Kernels timed_table(const Kernels& table) {
  inner = &table;
  Kernels timing = table;
  timing.matmul = timed_matmul;
  time_it<Part::products, &Kernels::multiply_rows>(timing);
  time_it<Part::attention, &Kernels::attend>(timing);
  time_it<Part::attention, &Kernels::join_segments>(timing);
  time_it<Part::prepare, &Kernels::prepare_groups>(timing);
  time_it<Part::norms, &Kernels::rms_norm>(timing);
  time_it<Part::rotation, &Kernels::rope>(timing);
  time_it<Part::gates, &Kernels::silu_mul>(timing);
  time_it<Part::gates, &Kernels::sigmoid_mul>(timing);
  time_it<Part::gates, &Kernels::gelu_mul>(timing);
  time_it<Part::gates, &Kernels::swiglu_limited>(timing);
  time_it<Part::write_kv, &Kernels::write_kv>(timing);
  time_it<Part::residuals, &Kernels::multiply>(timing);
  time_it<Part::residuals, &Kernels::add>(timing);
  time_it<Part::residuals, &Kernels::scale>(timing);
  time_it<Part::states, &Kernels::causal_conv>(timing);
  time_it<Part::states, &Kernels::selective_scan>(timing);
  time_it<Part::states, &Kernels::delta_rule>(timing);
  return timing;
}

// Sums over all threads since the program started.
struct Sums {
  std::array<double, kNumParts> part_s{}, bytes{}, operations{}, calls{};
  double forward_s = 0.0, sample_s = 0.0, plan_s = 0.0;
  std::uint64_t num_steps = 0;
  Clock::time_point at{};
};

Sums sums_of(const Engine& engine) {
  Sums sums;
  for (const Tally& tally : all_tallies) {
    for (std::size_t i = 0; i < kNumParts; ++i) {
      sums.part_s[i] += static_cast<double>(tally.ns[i].load(std::memory_order_relaxed)) * 1e-9;
      sums.bytes[i] += static_cast<double>(tally.bytes[i].load(std::memory_order_relaxed));
      sums.operations[i] += static_cast<double>(tally.operations[i].load(std::memory_order_relaxed));
      sums.calls[i] += static_cast<double>(tally.calls[i].load(std::memory_order_relaxed));
    }
  }
  const EngineStats stats = engine.stats();
  sums.forward_s = stats.forward_time_s.sum;
  sums.sample_s = stats.sample_time_s.sum;
  sums.plan_s = stats.scheduler_time_s.sum;
  sums.num_steps = stats.forward_time_s.counts.back();
  sums.at = Clock::now();
  return sums;
}

// Limits of this machine: bytes per second from memory, and multiplications per second in products.
struct Limits {
  double bytes_per_s = 0.0, operations_per_s = 0.0, clock_s = 0.0;
};

template <class Run>
double fastest_s(Run run) {
  double fastest = 1e9;
  for (int i = 0; i < 20; ++i) {
    const Clock::time_point begin = Clock::now();
    run();
    fastest = std::min(fastest, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return fastest;
}

double read_bytes_per_s(ThreadPool& pool) {
  constexpr std::uint32_t kChunks = 256;
  constexpr std::size_t kWords = std::size_t{1} << 18U;  // words of a chunk, 8 bytes each
  const HugeMemory held(kChunks * kWords * sizeof(std::uint64_t));
  const std::span memory(reinterpret_cast<std::uint64_t*>(held.data), kChunks * kWords);
  std::ranges::fill(memory, 1);
  std::array<std::uint64_t, kChunks> found{};
  const double seconds = fastest_s([&] {
    pool.parallel_for(kChunks, 1, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
      for (std::uint32_t chunk = begin; chunk < end; ++chunk) {
        std::uint64_t sum = 0;
        for (std::size_t i = 0; i < kWords; ++i) sum += memory[chunk * kWords + i];
        found.at(chunk) = sum;
      }
    });
  });
  if (std::ranges::count(found, kWords) != kChunks) std::abort();
  return static_cast<double>(memory.size_bytes()) / seconds;
}

double multiplications_per_s(ThreadPool& pool, const Kernels& kernels, ActivationMode mode) {
  constexpr std::uint32_t kColumns = 512, kRows = 64, kRounds = 200;
  MatrixPacker packer(WeightFormat::q4, kPanelRows, kColumns);
  const std::vector<std::uint8_t> codes(kColumns, 7);
  const std::vector<float> scales(kColumns / kGroupColumns, 0.01F), minimums(kColumns / kGroupColumns, -0.06F);
  for (std::uint32_t row = 0; row < kPanelRows; ++row) packer.put_q4(row, codes, scales, minimums);
  const PackedMatrix matrix = packer.finish();
  const std::uint32_t threads = pool.num_threads();
  struct Own {
    std::vector<float> x = std::vector<float>(std::size_t{kRows} * kColumns, 0.5F), y = std::vector<float>(kRows * kPanelRows);
    AlignedVector<std::byte> codes;
    Activations view;
  };
  std::vector<Own> owns(threads);
  for (Own& own : owns) {
    own.codes.resize(activation_scratch_bytes(mode, kRows, kColumns));
    own.view = make_activations(mode, own.x.data(), kColumns, kRows, kColumns, own.codes);
    kernels.prepare(own.view, 0, kRows);
  }
  const double seconds = fastest_s([&] {
    pool.parallel_for(threads, 1, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
      for (std::uint32_t i = begin; i < end; ++i)
        for (std::uint32_t round = 0; round < kRounds; ++round) kernels.matmul(matrix, owns[i].view, owns[i].y.data(), kPanelRows, 0, 1);
    });
  });
  return static_cast<double>(threads) * kRounds * kRows * kPanelRows * kColumns / seconds;
}

double clock_reading_s() {
  constexpr int kReadings = 100'000;
  return fastest_s([] {
           for (int i = 0; i < kReadings; ++i) (void)Clock::now();
         }) /
         kReadings;
}

struct Shape {
  std::uint32_t concurrency = 0, prompt_tokens = 0, output_tokens = 0;
};

void print_table(const Sums& from, const Sums& to, const char* what, const Limits& limits, double kv_bytes, std::uint32_t threads) {
  const double wall_s = std::chrono::duration<double>(to.at - from.at).count(), all_s = wall_s * threads;
  const auto percent = [&](double seconds) { return 100.0 * seconds / all_s; };
  fmt::print("  {}: {} steps, {:.2f} ms each\n", what, to.num_steps - from.num_steps,
             1e3 * wall_s / static_cast<double>(std::max<std::uint64_t>(1, to.num_steps - from.num_steps)));
  double kernels_s = 0.0, calls = 0.0;
  for (std::size_t i = 0; i < kNumParts; ++i) {
    const double split_calls = to.calls.at(i) - from.calls.at(i);
    // Subtracts the clock reading that falls into the measured time.
    const double part_s = std::max(0.0, to.part_s.at(i) - from.part_s.at(i) - split_calls * limits.clock_s);
    kernels_s += part_s;
    calls += split_calls;
    if (percent(part_s) < 0.05) continue;
    double bytes = to.bytes.at(i) - from.bytes.at(i);
    if (static_cast<Part>(i) == Part::attention) bytes = kv_bytes;
    const double memory_s = threads * bytes / limits.bytes_per_s;
    const double arithmetic_s = threads * (to.operations.at(i) - from.operations.at(i)) / limits.operations_per_s;
    fmt::print("    {:<28}{:6.1f} %", kPartNames.at(i), percent(part_s));
    if (bytes > 0.0) {
      fmt::print("   memory alone {:.1f} %", percent(memory_s));
      if (arithmetic_s > 0.0) fmt::print(", arithmetic alone {:.1f} %", percent(arithmetic_s));
    }
    fmt::print("\n");
  }
  const double forward_s = threads * (to.forward_s - from.forward_s), sample_s = threads * (to.sample_s - from.sample_s);
  const double clock_s = 2.0 * calls * limits.clock_s;
  fmt::print("    {:<28}{:6.1f} %\n", "reading the clock for this", percent(clock_s));
  fmt::print("    {:<28}{:6.1f} %\n", "waits and walks of a pass", percent(forward_s - kernels_s - clock_s));
  fmt::print("    {:<28}{:6.1f} %\n", "drawing tokens", percent(sample_s));
  fmt::print("    {:<28}{:6.1f} %   of which planning {:.1f} %\n", "the engine around a pass", percent(all_s - forward_s - sample_s),
             percent(threads * (to.plan_s - from.plan_s)));
}

// Waits until each request has `until` tokens.
void take_until(OutputQueue& queue, std::vector<std::size_t>& num_tokens, RequestId first, std::size_t until) {
  const auto is_there = [&](std::size_t count) { return count >= until; };
  while (!std::ranges::all_of(num_tokens, is_there))
    for (const RequestOutput& output : queue.take()) num_tokens.at(output.id.value - first.value) += output.tokens.size();
}

// Runs all requests concurrently. Returns the sums at the time at which all have their first token.
Sums ask(Engine& engine, OutputQueue& queue, const Shape& shape, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<TokenId> token(100, static_cast<TokenId>(engine.model().vocab_size) - 1);
  std::vector<std::size_t> num_tokens(shape.concurrency);
  RequestId first{};
  for (std::uint32_t i = 0; i < shape.concurrency; ++i) {
    EngineRequest request;
    request.sampling.max_tokens = shape.output_tokens;
    request.sampling.temperature = 0.0F;
    request.sampling.ignore_eos = true;
    for (std::uint32_t t = 0; t < shape.prompt_tokens; ++t) request.prompt.push_back(token(random));
    const RequestId id = engine.submit(request, queue).value();
    if (i == 0) first = id;
  }
  take_until(queue, num_tokens, first, 1);
  const Sums middle = sums_of(engine);
  take_until(queue, num_tokens, first, shape.output_tokens);
  return middle;
}

void profile(Engine& engine, OutputQueue& queue, const Shape& shape, const Limits& limits, std::uint32_t threads) {
  const Sums begin = sums_of(engine);
  const Sums middle = ask(engine, queue, shape, shape.concurrency + 1);
  const Sums end = sums_of(engine);
  const ModelInfo& model = engine.model();
  const double token_bytes = 2.0 * sizeof(std::uint16_t) * model.num_layers * model.num_kv_heads * model.head_dim;
  const double context = shape.prompt_tokens + shape.output_tokens / 2.0;
  fmt::print("{} requests at once, {} tokens in, {} out: {:.0f} tokens out a second\n", shape.concurrency, shape.prompt_tokens,
             shape.output_tokens, shape.concurrency * shape.output_tokens / std::chrono::duration<double>(end.at - begin.at).count());
  print_table(begin, middle, "prompts", limits, 0.0, threads);
  print_table(middle, end, "tokens", limits, token_bytes * context * shape.concurrency * (shape.output_tokens - 1), threads);
}

Result<int> run(const std::string& path, const std::vector<Shape>& shapes, std::uint32_t chunk_tokens) {
  const Shape largest = *std::ranges::max_element(shapes, {}, &Shape::concurrency);
  EngineOptions wanted;
  wanted.model = path;
  wanted.cache.enable_prefix_caching = false;
  wanted.scheduler.long_prefill_token_threshold = chunk_tokens;
  wanted.cache.num_blocks = largest.concurrency * ((largest.prompt_tokens + largest.output_tokens) / 16 + 1) + 1;
  auto file = ModelFile::open(path);
  if (!file) return std::unexpected(file.error());
  const auto info = file->info();
  if (!info) return std::unexpected(info.error());
  const auto resolved = resolve_options(wanted, *info, {usable_cores(), std::uint64_t{4} << 30U});
  if (!resolved) return std::unexpected(resolved.error());
  const EngineOptions& options = resolved->options;
  vocab_size = info->vocab_size;
  auto pool = std::make_unique<ThreadPool>(options.num_threads);
  const Kernels table = timed_table(select_kernels(options.isa));
  const Limits limits{.bytes_per_s = read_bytes_per_s(*pool),
                      .operations_per_s = multiplications_per_s(*pool, *inner, options.activations),
                      .clock_s = clock_reading_s()};
  auto cache = KvCache::create(resolved->layout);
  if (!cache) return std::unexpected(cache.error());
  auto model = load_model(*file, *info,
                          {.activations = options.activations,
                           .isa = options.isa,
                           .max_num_batched_tokens = options.scheduler.max_num_batched_tokens,
                           .max_num_seqs = options.scheduler.max_num_seqs,
                           .max_model_len = options.scheduler.max_model_len,
                           .num_cache_groups = static_cast<std::uint32_t>(cache->layout().groups.size()),
                           .pool = pool.get(),
                           .weights = options.weights,
                           .kernels = &table});
  if (!model) return std::unexpected(model.error());
  EngineParts parts;
  parts.worker = std::make_unique<Worker>(resolved->limits, std::move(pool), *std::move(model), *std::move(cache));
  const auto engine = make_engine(*resolved, std::move(parts));
  if (!engine) return std::unexpected(engine.error());
  fmt::print("{}, {} threads, {}: {:.1f} GB/s from memory, {:.0f} G multiplications a second in a product\n", info->name,
             options.num_threads, inner->name, limits.bytes_per_s * 1e-9, limits.operations_per_s * 1e-9);
  OutputQueue queue;
  ask(**engine, queue, largest, 1);  // touches all memory before the measurement
  for (const Shape& shape : shapes) profile(**engine, queue, shape, limits, options.num_threads);
  (*engine)->stop(1.0);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: step_bench MODEL [CONCURRENCY,...] [PROMPT TOKENS] [OUTPUT TOKENS] [CHUNK TOKENS]\n");
    return 2;
  }
  const auto number = [&](int i, std::uint32_t otherwise) {
    return argc > i ? std::max(1U, static_cast<std::uint32_t>(std::strtoul(argv[i], nullptr, 10))) : otherwise;
  };
  std::vector<Shape> shapes;
  std::istringstream counts(argc > 2 ? argv[2] : "1,8,64");
  for (std::string count; std::getline(counts, count, ',');)
    shapes.push_back({std::max(1U, static_cast<std::uint32_t>(std::strtoul(count.c_str(), nullptr, 10))), number(3, 128), number(4, 64)});
  const Result<int> code = run(argv[1], shapes, argc > 5 ? number(5, 1) : 0);
  if (code) return *code;
  fmt::print(stderr, "step_bench: {}\n", code.error().to_string());
  return 1;
}
