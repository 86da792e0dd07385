// Shared parts of the image encoders: runs, products on the pool, and the conversion of bytes to the image processor's values. The worker
// (image_encoder.h) calls them after a pass, or before a pass that needs an image immediately, with the pool. Values are rounded where
// transformers' image processors round them.
#include "runtime/model/vision_encoder.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "runtime/kernel/layer_math.h"
#include "runtime/model/qwen_vision_encoder.h"
#include "runtime/model/vit_encoder.h"

namespace quire {
namespace {

// Computes x / (1 + exp(-1.702 x)) in place.
void quick_gelu(const Kernels& kernels, float* x, std::uint32_t count) {
  constexpr std::uint32_t kPart = 256;
  std::array<float, kPart> gate;
  for (std::uint32_t begin = 0; begin < count; begin += kPart) {
    const std::uint32_t part = std::min(kPart, count - begin);
    for (std::uint32_t i = 0; i < part; ++i) gate[i] = 1.702F * x[begin + i];
    kernels.sigmoid_mul(gate.data(), x + begin, x + begin, part);
  }
}

}  // namespace

HeadMatrices pack_head(const float* keys, const float* values, std::size_t stride, std::uint32_t rows, std::uint32_t dim) {
  MatrixPacker by_row(WeightFormat::f32, rows, dim), by_column(WeightFormat::f32, dim, rows);
  std::vector<float> column(rows);
  for (std::uint32_t i = 0; i < rows; ++i) by_row.put_f32(i, {keys + i * stride, dim});
  for (std::uint32_t j = 0; j < dim; ++j) {
    for (std::size_t i = 0; i < rows; ++i) column[i] = values[i * stride + j];
    by_column.put_f32(j, column);
  }
  return {by_row.finish(), by_column.finish()};
}

Activations floats_of(const float* x, std::size_t stride, std::uint32_t rows, std::uint32_t columns) {
  return make_activations(ActivationMode::f32, x, stride, rows, columns, {});
}

VisionEncoder::VisionEncoder(const VisionConfig& config, const ImageInfo& info, const Kernels& kernels, ThreadPool& pool)
    : config_(config), kernels_(kernels), pool_(pool) {
  // Rounds like the image processor: to f32 after the scaling, and after each further operation.
  for (std::size_t channel = 0; channel < colours_.size(); ++channel)
    for (std::size_t value = 0; value < colours_[channel].size(); ++value)
      colours_[channel][value] =
          (static_cast<float>(static_cast<double>(value) * info.rescale) - info.mean[channel]) / info.deviation[channel];
}

void VisionEncoder::begin(VisionRun& run, const VisionTile& tile) {
  QUIRE_CHECK(tile.rgb.size() == std::size_t{3} * tile.width * tile.height, "the tile has 3 bytes per pixel");
  start(run.work_, tile, run.embeds_);
  run.is_done_ = false;
}

void VisionEncoder::advance(VisionRun& run) {
  if (!run.is_done_) run.is_done_ = step(*run.work_, run.embeds_);
}

void VisionEncoder::product(const Linear& linear, const float* x, std::uint32_t rows, float* y, std::size_t stride) {
  const PackedMatrix& matrix = linear.matrix;
  if (stride == 0) stride = matrix.rows;
  const Activations inputs = make_activations(ActivationMode::f32, x, matrix.columns, rows, matrix.columns, {});
  const std::uint32_t grain = std::max(1U, matrix.num_panels() / (pool_.num_threads() * 4));
  pool_.parallel_for(matrix.num_panels(), grain, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
    kernels_.matmul(matrix, inputs, y, stride, begin, end);
    if (linear.bias.empty()) return;
    const std::uint32_t first = begin * kPanelRows, last = std::min(end * kPanelRows, matrix.rows);
    for (std::size_t row = 0; row < rows; ++row) kernels_.add(y + row * stride + first, linear.bias.data() + first, last - first);
  });
}

void VisionEncoder::norm_rows(const LayerNormWeights& norm, const float* x, std::uint32_t rows, float* y) {
  const std::size_t width = norm.weight.size();
  pool_.parallel_for(rows, 8, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
    for (std::size_t row = begin; row < end; ++row)
      layer_norm(x + row * width, norm.weight.data(), norm.bias.data(), config_.norm_epsilon, y + row * width,
                 static_cast<std::uint32_t>(width));
  });
}

void VisionEncoder::activate(VisionActivation activation, float* values, std::uint32_t rows, std::uint32_t width) {
  pool_.parallel_for(rows, 8, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
    for (std::size_t row = begin; row < end; ++row) {
      float* const at = values + row * width;
      switch (activation) {
        case VisionActivation::gelu_tanh:
          kernels_.gelu_mul(at, ones_.data(), at, width);
          break;
        case VisionActivation::gelu_erf:
          gelu(at, width);
          break;
        case VisionActivation::quick_gelu:
          quick_gelu(kernels_, at, width);
          break;
      }
    }
  });
}

// Uses exp(x) = sigmoid(x) / sigmoid(-x), because the kernels have the sigmoid. A row of scores that contains NaN becomes NaN.
void VisionEncoder::softmax(float* scores, std::uint32_t count, float scale, float* scratch) const {
  float most = scores[0];
  for (std::uint32_t i = 1; i < count; ++i) most = std::max(most, scores[i]);
  for (std::uint32_t i = 0; i < count; ++i) {
    scores[i] = (scores[i] - most) * scale;
    scratch[i] = -scores[i];
  }
  kernels_.sigmoid_mul(scratch, ones_.data(), scratch, count);
  kernels_.sigmoid_mul(scores, ones_.data(), scores, count);
  double sum = 0.0;
  for (std::uint32_t i = 0; i < count; ++i) {
    scores[i] /= scratch[i];
    sum += scores[i];
  }
  const auto inverse = static_cast<float>(1.0 / sum);
  for (std::uint32_t i = 0; i < count; ++i) scores[i] *= inverse;
}

void VisionEncoder::reserve_ones(std::size_t count) {
  if (ones_.size() < count) ones_.assign(count, 1.0F);
}

Result<LoadedVision> load_vision_encoder(const ModelFile& file, const VisionConfig& config, const ImageInfo& info, const Kernels& kernels,
                                         ThreadPool& pool, const PackingOptions& packing) {
  if (info.processor == "qwen2_vl") {
    auto own = load_qwen_vision(file, config, pool, packing);
    if (!own) return std::unexpected(std::move(own.error()));
    std::vector<std::string> notes = std::move(own->notes);
    return LoadedVision{std::make_unique<QwenVisionEncoder>(config, info, *std::move(own), kernels, pool), std::move(notes)};
  }
  auto weights = load_vision(file, config, pool, packing);
  if (!weights) return std::unexpected(std::move(weights.error()));
  std::vector<std::string> notes = std::move(weights->notes);
  return LoadedVision{std::make_unique<VitEncoder>(config, info, *std::move(weights), kernels, pool), std::move(notes)};
}

}  // namespace quire
