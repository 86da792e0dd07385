// Operations that all layers of a pass share: products, divided among the threads by panels or rows, norms and activations. Called by
// sublayers on the thread that leads the pass; a phase ends when all threads of the pool have done their part. The division of the work
// does not change the bits.
#include "runtime/model/layers/pass.h"

#include <algorithm>

#include "runtime/kernel/layer_math.h"
#include "runtime/model/layers/lora_products.h"

namespace quire {
namespace {

// Multiplies panels [begin, end) of all products, which are numbered consecutively.
void multiply_panels(const Kernels& kernels, std::span<const Product> products, const Activations& x, std::uint32_t begin,
                     std::uint32_t end) {
  std::uint32_t first = 0;
  for (const Product& product : products) {
    const std::uint32_t last = first + product.matrix->num_panels();
    const std::uint32_t from = std::max(begin, first);
    const std::uint32_t to = std::min(end, last);
    if (from < to) kernels.matmul(*product.matrix, x, product.y, product.y_stride, from - first, to - first);
    first = last;
  }
}

// Returns the leading products that need their inputs in the same order.
std::span<const Product> with_one_order(std::span<const Product> products) {
  std::size_t count = 1;
  while (count < products.size() && products[count].matrix->input_order == products.front().matrix->input_order) ++count;
  return products.first(count);
}

}  // namespace

Pass::Pass(const ModelConfig& config, const Kernels& table, ActivationMode activation_mode, const WorkspaceLimits& limits,
           ThreadPool& threads)
    : shape(config),
      kernels(table),
      mode(activation_mode),
      pool(threads),
      workspace(config, activation_mode, limits),
      num_layers(config.num_layers) {}

void Pass::multiply(std::span<const Product> products, const Activations& x, std::uint32_t first_row) {
  const LoraProducts adapted(*this, products, first_row, x.rows);
  std::uint32_t units = adapted.num_units();
  // Runs one phase for all products, or one phase for each order of the inputs.
  for (std::span<const Product> rest = products; !rest.empty(); units = 0) {
    const std::span<const Product> together = with_one_order(rest);
    rest = rest.subspan(together.size());
    std::uint32_t panels = 0;
    std::size_t bytes = 0;
    for (const Product& product : together) {
      panels += product.matrix->num_panels();
      bytes += product.matrix->bytes();
    }
    const Activations inputs = reordered_input(*together.front().matrix, x);
    pool.parallel_for(panels + units, panel_grain(panels, bytes / std::max(panels, 1U), x.rows),
                      [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
                        multiply_panels(kernels, together, inputs, begin, std::min(end, panels));
                        if (end > panels) adapted.project(x, std::max(begin, panels) - panels, end - panels);
                      });
  }
}

Activations Pass::reordered_input(const PackedMatrix& matrix, const Activations& x, std::size_t place) {
  if (matrix.input_order == nullptr) return x;
  const OrderedInput& out = workspace.ordered[place];
  const std::vector<std::uint32_t>& order = *matrix.input_order;
  const Activations ordered = activations(out.x, x.rows, x.columns, out.codes);
  for_rows(x.rows, [&](std::uint32_t begin, std::uint32_t end) {
    for (std::uint32_t row = begin; row < end; ++row) {
      const float* from = x.x + row * x.stride;
      float* to = out.x + row * ordered.stride;
      for (std::uint32_t i = 0; i < x.columns; ++i) to[i] = from[order[i]];
    }
    kernels.prepare(ordered, begin, end);
  });
  return ordered;
}

Activations Pass::activations(const float* x, std::uint32_t num_rows, std::uint32_t columns, std::span<std::byte> codes) const {
  return make_activations(columns % kGroupColumns == 0 ? mode : ActivationMode::f32, x, columns, num_rows, columns, codes);
}

Activations Pass::stream_input() const {
  return activations(workspace.input, rows, shape.hidden_size, workspace.hidden_codes);
}

void Pass::norm_row(const float* values, const std::vector<float>& norm, float* out) const {
  if (norm.empty()) {
    if (out != values) std::copy_n(values, shape.hidden_size, out);
  } else if (shape.layer_norms) {
    layer_norm(values, norm.data(), norm.data() + shape.hidden_size, shape.norm_epsilon, out, shape.hidden_size);
  } else {
    kernels.rms_norm(values, norm.data(), shape.norm_epsilon, out, shape.hidden_size);
  }
}

void Pass::activate(float* gate, const float* up, std::uint32_t n) const {
  switch (shape.activation) {
    case GateActivation::silu:
      return kernels.silu_mul(gate, up, gate, n);
    case GateActivation::gelu_tanh:
      return kernels.gelu_mul(gate, up, gate, n);
    case GateActivation::swiglu_limited:
      return kernels.swiglu_limited(gate, up, shape.swiglu_limit, gate, n);
    case GateActivation::relu2:
      // The comparison keeps NaN.
      for (std::uint32_t i = 0; i < n; ++i) gate[i] = gate[i] <= 0.0F ? 0.0F : gate[i] * gate[i];
      return;
    case GateActivation::gelu:
      return gelu(gate, n);
  }
}

void Pass::add_to_stream(const std::vector<float>& bias, const std::vector<float>& post_norm, const std::vector<float>* next_norm,
                         std::uint32_t row_begin, std::uint32_t row_end) {
  const std::uint32_t width = shape.hidden_size;
  for (std::uint32_t row = row_begin; row < row_end; ++row) {
    float* hidden = workspace.hidden + std::size_t{row} * width;
    float* input = workspace.input + std::size_t{row} * width;
    if (!bias.empty()) kernels.add(input, bias.data(), width);
    norm_row(input, post_norm, input);
    kernels.scale(input, shape.residual_scale, width);
    kernels.add(hidden, input, width);
    if (next_norm != nullptr) norm_row(hidden, *next_norm, input);
  }
  if (next_norm != nullptr) kernels.prepare(stream_input(), row_begin, row_end);
}

void Pass::record_experts(std::uint32_t row, std::span<const ChosenExpert> chosen) const {
  if (experts.empty()) return;
  const std::size_t at = (std::size_t{workspace.sources[row]} * num_layers + layer) * chosen.size();
  for (std::size_t i = 0; i < chosen.size(); ++i) experts[at + i] = static_cast<std::uint16_t>(chosen[i].expert);
}

std::uint32_t Pass::row_grain(std::uint32_t count) const {
  return std::max(kRowTile, count / (pool.num_threads() * 4) / kRowTile * kRowTile);
}

std::uint32_t Pass::panel_grain(std::uint32_t panels, std::size_t panel_bytes, std::uint32_t num_rows) const {
  // Work per task that is worth a second thread: some microseconds. With one row, reading the weights dominates; with more rows, computing
  // does.
  constexpr std::size_t kWorthSharing = 32'768;
  const std::size_t work = panel_bytes * (1 + num_rows / 4);
  const auto least = static_cast<std::uint32_t>(kWorthSharing / work + 1);
  const std::uint32_t grain = std::max(least, panels / (pool.num_threads() * 8));
  return (grain + 1) / 2 * 2;  // two panels are a group of the next product's inputs
}

}  // namespace quire
