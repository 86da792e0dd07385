#pragma once
// What the parts of a decoder share in a forward pass: its rows, its buffers, and the phases in which threads work on them together.
#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "runtime/kernel/kernel.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/kept/expert_store.h"
#include "runtime/model/layers/workspace.h"
#include "runtime/model/weights/adapter.h"

namespace quire {

// One of the products that share an input: row r goes to y + r * y_stride.
struct Product {
  const PackedMatrix* matrix = nullptr;
  float* y = nullptr;
  std::size_t y_stride = 0;
  LowRank LayerAdapter::* adapted = nullptr;  // what adapters add to it (adapted_products.h); null: nothing
};

// Made once with the decoder and used again for each pass. Threads of the pool write disjoint rows or panels in a phase, so phases need no
// locks.
struct Pass {
  Pass(const ModelConfig& config, const Kernels& kernels, ActivationMode mode, const WorkspaceLimits& limits, ThreadPool& pool);

  // Each of these is a phase: it ends when all of it is done. Products are split over panels of outputs, the rest over rows.
  template <class Body>
  void for_rows(std::uint32_t count, Body body) {  // body(begin, end)
    pool.parallel_for(count, row_grain(count), [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) { body(begin, end); });
  }
  // The first row of x is row `first_row` of the pass. Of what adapters add the first half is done, too.
  void multiply(std::span<const Product> products, const Activations& x, std::uint32_t first_row = 0);

  // The inputs as the matrix wants them: x, or a copy in the order of its columns, made in a phase and good until the next one that is made
  // in this place. Products that run at once have places of their own.
  Activations in_order_of(const PackedMatrix& matrix, const Activations& x, std::size_t place = 0);

  [[nodiscard]] Activations activations(const float* x, std::uint32_t num_rows, std::uint32_t columns, std::span<std::byte> codes) const;
  // What the next half of a layer reads.
  [[nodiscard]] Activations stream_input() const;
  // An empty norm leaves the values as they are.
  void norm_row(const float* values, const std::vector<float>& norm, float* out) const;
  // gate = activation(gate) * up, as the model has it, over n values; or, where it has no gates, activation(gate).
  void activate(float* gate, const float* up, std::uint32_t n) const;
  // Adds what a half made, which lies in `input`: stream += scale * post_norm(input + bias); then, given `next_norm`, input =
  // next_norm(stream), prepared.
  void add_to_stream(const std::vector<float>& bias, const std::vector<float>& post_norm, const std::vector<float>* next_norm,
                     std::uint32_t row_begin, std::uint32_t row_end);

  // Where somebody wants to know them.
  void tell_experts(std::uint32_t row, std::span<const ChosenExpert> chosen) const;

  // Whole tiles of rows (kRowTile), so that no two threads write to one cache line of activations.
  [[nodiscard]] std::uint32_t row_grain(std::uint32_t count) const;
  [[nodiscard]] std::uint32_t panel_grain(std::uint32_t panels, std::size_t panel_bytes, std::uint32_t num_rows) const;

  LayerShape shape;
  const Kernels& kernels;
  ActivationMode mode;
  ThreadPool& pool;
  Workspace workspace;
  std::uint32_t rows = 0;   // after the last keys and values, the output rows
  std::uint32_t layer = 0;  // that is under way
  std::uint32_t num_layers = 0;
  ExpertStore* stored_experts = nullptr;  // from which they are brought; null: they are there
  std::span<std::uint16_t> experts;       // PassOutput::experts of the pass under way
};

}  // namespace quire
