// Measures the speed of the kernels: kernel_bench [THREADS] [SECONDS PER LINE]. Prints, per instruction set and format, the time of one
// product, the bandwidth of its weights and its arithmetic; then the products of one token of SmolLM2-135M, and attention.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <random>
#include <vector>

#include "base/thread_pool.h"
#include "huge_memory.h"
#include "runtime/kernel/kernel.h"

namespace {

using namespace quire;

struct Setup {
  ThreadPool pool;
  double seconds;
};

// Returns the time of the fastest call. On a shared machine, slower calls include the load of other programs.
template <class Run>
double measure(const Setup& setup, Run run) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> times;
  const auto start = Clock::now();
  auto last = start;
  run();
  do {
    last = Clock::now();
    run();
    times.push_back(std::chrono::duration<double>(Clock::now() - last).count());
  } while (std::chrono::duration<double>(last - start).count() < setup.seconds || times.size() < 3);
  return *std::min_element(times.begin(), times.end());
}

PackedMatrix make_matrix(WeightFormat format, std::uint32_t rows, std::uint32_t columns) {
  MatrixPacker packer(format, rows, columns);
  std::mt19937 rng(rows + columns);
  const std::vector<float> values(columns, 0.01F);
  std::vector<std::uint8_t> codes(columns);
  const std::vector<float> scales(columns / 16, 0.0078125F);
  const std::vector<float> minimums(columns / 16, format == WeightFormat::q4 ? -0.0625F : 0.0F);
  for (std::uint32_t row = 0; row < rows; ++row) {
    if (format == WeightFormat::f32 || format == WeightFormat::bf16) {
      packer.put_f32(row, values);
      continue;
    }
    for (std::uint8_t& code : codes) code = static_cast<std::uint8_t>(rng() % 16);
    if (format == WeightFormat::q8)
      packer.put_q8(row, codes, scales, minimums);
    else
      packer.put_q4(row, codes, std::span(scales).first(columns / 32), std::span(minimums).first(columns / 32));
  }
  return packer.finish();
}

// The input of products with up to `columns` columns.
struct Input {
  Input(std::uint32_t m, std::uint32_t columns)
      : x(std::size_t{m} * columns),
        scratch(activation_scratch_bytes(ActivationMode::bf16, m, columns) + activation_scratch_bytes(ActivationMode::int16, m, columns)) {
    std::mt19937 rng(m);
    std::normal_distribution<float> normal;
    for (float& value : x) value = normal(rng);
  }
  Activations view(ActivationMode mode, std::uint32_t m, std::uint32_t columns) {
    return make_activations(mode, x.data(), columns, m, columns, scratch);
  }
  std::vector<float> x;
  AlignedVector<std::byte> scratch;
};

void prepare(Setup& setup, const Kernels& kernels, const Activations& x) {
  setup.pool.parallel_for(x.rows, 8, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) { kernels.prepare(x, begin, end); });
}

void multiply(Setup& setup, const Kernels& kernels, const PackedMatrix& w, const Activations& x, float* y) {
  const std::uint32_t grain = std::clamp(w.num_panels() / (setup.pool.num_threads() * 4), 1U, 64U);
  setup.pool.parallel_for(w.num_panels(), grain,
                          [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) { kernels.matmul(w, x, y, w.rows, begin, end); });
}

void bench_products(Setup& setup, const Kernels& kernels) {
  constexpr std::uint32_t kColumns = 1536;
  struct Case {
    const char* name;
    WeightFormat format;
    ActivationMode mode;
  };
  for (const Case& c :
       {Case{"q4 int16", WeightFormat::q4, ActivationMode::int16}, Case{"q8 int16", WeightFormat::q8, ActivationMode::int16},
        Case{"q4 int8", WeightFormat::q4, ActivationMode::int8}, Case{"q8 int8", WeightFormat::q8, ActivationMode::int8},
        Case{"bf16", WeightFormat::bf16, ActivationMode::f32}, Case{"bf16 bf16", WeightFormat::bf16, ActivationMode::bf16},
        Case{"f32", WeightFormat::f32, ActivationMode::f32}, Case{"q4 float", WeightFormat::q4, ActivationMode::f32}}) {
    const std::uint32_t rows = 96 * 1024;  // larger than the last-level cache
    for (const std::uint32_t m : {1U, 16U, 256U}) {
      const PackedMatrix w = make_matrix(c.format, m == 1 ? rows : 2048, kColumns);
      Input input(m, kColumns);
      std::vector<float> y(std::size_t{m} * w.rows);
      const Activations x = input.view(c.mode, m, kColumns);
      prepare(setup, kernels, x);
      const double time = measure(setup, [&] { multiply(setup, kernels, w, x, y.data()); });
      fmt::print("{:9} {:9} m={:<4} n={:<6} k={}  {:9.1f} us  {:7.2f} GB/s  {:8.1f} GFLOP/s\n", kernels.name, c.name, m, w.rows, kColumns,
                 time * 1e6, static_cast<double>(w.bytes()) / time * 1e-9, 2.0 * m * w.rows * kColumns / time * 1e-9);
    }
  }
}

// Weights of SmolLM2-135M: seven products per layer, and the logits.
struct Model {
  static constexpr std::uint32_t kLayers = 30, kHidden = 576, kKv = 192, kFfn = 1536, kVocab = 49152;
  Model() {
    for (std::uint32_t i = 0; i < kLayers; ++i) {
      for (const auto& [rows, columns] : {std::pair{kHidden, kHidden},
                                          {kKv, kHidden},
                                          {kKv, kHidden},
                                          {kHidden, kHidden},
                                          {kFfn, kHidden},
                                          {kFfn, kHidden},
                                          {kHidden, kFfn}}) {
        layers.push_back(make_matrix(WeightFormat::q4, rows, columns));
      }
    }
    logits = make_matrix(WeightFormat::q8, kVocab, kHidden);
  }
  std::vector<PackedMatrix> layers;
  PackedMatrix logits;
};

void bench_model(Setup& setup, const Kernels& kernels, const Model& model, ActivationMode mode) {
  for (const std::uint32_t m : {1U, 2U, 3U, 4U, 5U, 6U, 7U, 8U, 16U, 64U, 512U}) {
    Input input(m, Model::kFfn);
    std::vector<float> y(std::size_t{m} * Model::kVocab);
    std::uint64_t bytes = 0;
    const double time = measure(setup, [&] {
      bytes = 0;
      for (const PackedMatrix& w : model.layers) {
        const Activations x = input.view(mode, m, w.columns);
        prepare(setup, kernels, x);
        multiply(setup, kernels, w, x, y.data());
        bytes += w.bytes();
      }
      const std::uint32_t outputs = std::min(m, 64U);  // logits of sampled rows only
      const Activations x = input.view(mode, outputs, Model::kHidden);
      prepare(setup, kernels, x);
      multiply(setup, kernels, model.logits, x, y.data());
      bytes += model.logits.bytes();
    });
    fmt::print("{:9} smollm2-135m products {} m={:<4} {:9.1f} us  {:7.2f} GB/s  {:8.0f} tokens/s\n", kernels.name,
               mode == ActivationMode::int8 ? "int8 " : "int16", m, time * 1e6, static_cast<double>(bytes) / time * 1e-9, m / time);
  }
}

void bench_attention(Setup& setup, const Kernels& kernels, bool in_pairs) {
  constexpr std::uint32_t kContext = 2048, kHeads = 3, kGroup = 3, kDim = 64, kBlock = 16;
  PagedKvLayer layer{.dtype = KvDtype::bf16, .block_size = kBlock, .num_kv_heads = kHeads, .head_dim = kDim};
  layer.token_stride = kDim;
  layer.head_stride = std::size_t{kBlock} * kDim;
  layer.block_stride = layer.head_stride * kHeads;
  AlignedVector<std::byte> cache(2 * layer.block_stride * (kContext / kBlock));
  layer.keys = layer.values = cache.data();
  std::vector<BlockId> blocks(kContext / kBlock);
  for (std::uint32_t i = 0; i < blocks.size(); ++i) blocks[i] = BlockId{i};
  const std::size_t bytes = attention_scratch_bytes(kDim, kGroup);
  AlignedVector<std::byte> scratch(bytes * setup.pool.num_threads());
  for (const std::uint32_t rows : {1U, 16U, 512U}) {
    const std::size_t stride = std::size_t{kHeads} * kGroup * kDim;
    std::vector<float> q(rows * stride, 0.5F);
    std::vector<float> out(rows * stride);
    const std::uint32_t items = (rows - 1) / kAttentionItemRows + 1;
    const double time = measure(setup, [&] {
      setup.pool.parallel_for(items * kHeads, 1, [&](std::uint32_t begin, std::uint32_t, std::uint32_t thread) {
        const std::uint32_t first = begin / kHeads * kAttentionItemRows;
        AttentionItem item{.q = q.data() + first * stride, .out = out.data() + first * stride, .q_stride = stride, .out_stride = stride};
        item.rows = std::min(kAttentionItemRows, rows - first);
        item.first_position = kContext - rows + first;
        item.kv_head = begin % kHeads;
        item.group = kGroup;
        item.blocks = blocks.data();
        item.in_pairs = in_pairs;
        kernels.attend(layer, item, std::span(scratch).subspan(bytes * thread, bytes));
      });
    });
    fmt::print("{:9} attention{} rows={:<4} context={} heads=9/3 dim=64  {:9.1f} us  {:8.1f} GFLOP/s\n", kernels.name,
               in_pairs ? " in pairs" : "", rows, kContext, time * 1e6, 4.0 * rows * kContext * kHeads * kGroup * kDim / time * 1e-9);
  }
}

// Measures decode attention: one token per request, in every layer. The blocks are shuffled over a KV cache larger than the CPU's caches.
void bench_decode(Setup& setup, const Kernels& kernels, bool in_pairs) {
  constexpr std::uint32_t kLayers = 30, kHeads = 3, kGroup = 3, kDim = 64, kBlock = 16, kMostTokens = 24 * 1536;
  constexpr std::size_t kRow = std::size_t{kHeads} * kGroup * kDim;
  PagedKvLayer layer{.dtype = KvDtype::bf16, .block_size = kBlock, .num_kv_heads = kHeads, .head_dim = kDim};
  layer.token_stride = kDim;
  layer.head_stride = std::size_t{kBlock} * kDim;
  layer.block_stride = layer.head_stride * kHeads;
  const std::size_t layer_bytes = 2 * layer.block_stride * (kMostTokens / kBlock);
  const HugeMemory cache(2 * kLayers * layer_bytes);
  std::vector<BlockId> blocks(kMostTokens / kBlock);
  for (std::uint32_t i = 0; i < blocks.size(); ++i) blocks[i] = BlockId{i};
  std::ranges::shuffle(blocks, std::mt19937(1));
  const std::size_t bytes = attention_scratch_bytes(kDim, kGroup);
  AlignedVector<std::byte> scratch(bytes * setup.pool.num_threads());
  for (const auto& [streams, context] : {std::pair{1U, 128U}, {1U, 1536U}, {24U, 128U}, {24U, 1536U}}) {
    std::vector<float> q(streams * kRow, 0.5F);
    std::vector<float> out(streams * kRow);
    const double time = measure(setup, [&] {
      for (std::uint32_t l = 0; l < kLayers; ++l) {
        layer.keys = cache.data + 2 * l * layer_bytes;
        layer.values = layer.keys + layer_bytes;
        setup.pool.parallel_for(streams * kHeads, 1, [&](std::uint32_t i, std::uint32_t, std::uint32_t thread) {
          AttentionItem item{.q = q.data() + i / kHeads * kRow, .out = out.data() + i / kHeads * kRow, .rows = 1};
          item.first_position = context - 1;
          item.kv_head = i % kHeads;
          item.group = kGroup;
          item.blocks = blocks.data() + i / kHeads * (context / kBlock);
          item.in_pairs = in_pairs;
          kernels.attend(layer, item, std::span(scratch).subspan(bytes * thread, bytes));
        });
      }
    });
    fmt::print("{:9} decode attention{} streams={:<3} context={:<5} {} layers heads=9/3 dim=64  {:9.1f} us  {:7.2f} GB/s of K and V\n",
               kernels.name, in_pairs ? " in pairs" : "", streams, context, kLayers, time * 1e6,
               4.0 * kLayers * streams * context * kHeads * kDim / time * 1e-9);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const auto threads = static_cast<std::uint32_t>(argc > 1 ? std::atoi(argv[1]) : 2);
  Setup setup{ThreadPool(std::max(threads, 1U)), argc > 2 ? std::atof(argv[2]) : 0.3};
  const Model model;
  for (const KernelIsa isa : kFastIsas) {
    const auto kernels = find_kernels(isa);
    if (!kernels) continue;
    for (const ActivationMode mode : {ActivationMode::int16, ActivationMode::int8}) bench_model(setup, **kernels, model, mode);
    for (const bool in_pairs : {false, true}) {
      bench_attention(setup, **kernels, in_pairs);
      bench_decode(setup, **kernels, in_pairs);
    }
    bench_products(setup, **kernels);
  }
}
