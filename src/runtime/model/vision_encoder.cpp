// The tower of SigLIP (pre-norm layers, all patches at once), pixel shuffle and a projection. Units are rows of a product's inputs, or a
// head: what one makes does not depend on where another ends, so the bits are those of a tile that is computed in one go.
#include "runtime/model/vision_encoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "runtime/kernel/layer_math.h"

namespace quire {
namespace {

constexpr std::uint32_t kUnitRows = 32;  // patches that go through products together
constexpr std::uint32_t kHeadParts = 2;  // in which the queries of a head take turns
constexpr std::uint32_t kHeadRows = 16;  // whose scores a thread has at once

std::uint32_t units_of(std::uint32_t rows) {
  return (rows + kUnitRows - 1) / kUnitRows;
}

Activations floats(const float* x, std::size_t stride, std::uint32_t rows, std::uint32_t columns) {
  return make_activations(ActivationMode::f32, x, stride, rows, columns, {});
}

}  // namespace

VisionEncoder::VisionEncoder(const VisionConfig& config, const PictureInfo& info, VisionWeights weights, const Kernels& kernels,
                             ThreadPool& pool)
    : config_(config), weights_(std::move(weights)), kernels_(kernels), pool_(pool) {
  // In the processor's order of roundings: to f32 once it is scaled, and at each step behind.
  for (std::size_t colour = 0; colour < colours_.size(); ++colour)
    for (std::size_t value = 0; value < colours_[colour].size(); ++value)
      colours_[colour][value] =
          (static_cast<float>(static_cast<double>(value) * info.rescale) - info.mean[colour]) / info.deviation[colour];
  const std::size_t widest = std::max({config.patch_values(), config.hidden_size, config.shuffled_size()});
  input_.resize(kUnitRows * widest);
  inner_.resize(std::size_t{kUnitRows} * std::max(config.intermediate_size, config.hidden_size));
  ones_.assign(std::max(config.intermediate_size, config.num_patches()), 1.0F);
  scores_.resize(std::size_t{pool.num_threads()} * (kHeadRows + 2) * config.num_patches());
}

std::uint64_t VisionEncoder::workspace_bytes() const {
  const std::uint64_t run =
      std::uint64_t{5} * config_.num_patches() * config_.hidden_size + std::uint64_t{config_.num_embeds()} * config_.output_size;
  return (run + input_.size() + inner_.size() + ones_.size() + scores_.size()) * sizeof(float);
}

void VisionEncoder::begin(VisionRun& run, std::span<const std::uint8_t> tile) const {
  QUIRE_CHECK(tile.size() == std::size_t{3} * config_.image_size * config_.image_size, "a tile of the encoder's size");
  run.pixels_.assign(tile.begin(), tile.end());
  for (auto* values : {&run.stream_, &run.q_, &run.k_, &run.v_, &run.attended_})
    values->resize(std::size_t{config_.num_patches()} * config_.hidden_size);
  run.embeds_.resize(std::size_t{config_.num_embeds()} * config_.output_size);
  run.stage_ = Stage::patches;
  run.layer_ = run.unit_ = 0;
}

std::uint32_t VisionEncoder::num_units(Stage stage) const {
  if (stage == Stage::attend) return config_.num_heads * kHeadParts;
  return units_of(stage == Stage::connect ? config_.num_embeds() : config_.num_patches());
}

void VisionEncoder::advance(VisionRun& run) {
  if (run.is_done()) return;
  const std::uint32_t first = run.unit_ * kUnitRows;
  const std::uint32_t rows = run.stage_ == Stage::connect ? config_.num_embeds() : config_.num_patches();
  const std::uint32_t count = std::min(kUnitRows, rows - std::min(rows, first));
  switch (run.stage_) {
    case Stage::patches:
      take_patches(run, first, count);
      break;
    case Stage::project:
      project(run, first, count);
      break;
    case Stage::attend:
      attend(run, run.unit_ / kHeadParts, run.unit_ % kHeadParts);
      break;
    case Stage::mix:
      mix(run, first, count);
      break;
    case Stage::connect:
      connect(run, first, count);
      break;
    case Stage::done:
      break;
  }
  if (++run.unit_ < num_units(run.stage_)) return;
  run.unit_ = 0;
  const bool is_last = run.stage_ == Stage::mix && ++run.layer_ == config_.num_layers;
  if (run.stage_ == Stage::connect)
    run.stage_ = Stage::done;
  else if (is_last)
    run.stage_ = Stage::connect;
  else if (run.stage_ == Stage::mix)
    run.stage_ = Stage::project;
  else
    run.stage_ = static_cast<Stage>(static_cast<std::uint8_t>(run.stage_) + 1);
}

void VisionEncoder::product(const Linear& linear, const float* x, std::uint32_t rows, float* y) {
  const PackedMatrix& matrix = linear.matrix;
  const Activations inputs = floats(x, matrix.columns, rows, matrix.columns);
  const std::uint32_t grain = std::max(1U, matrix.num_panels() / (pool_.num_threads() * 4));
  pool_.parallel_for(matrix.num_panels(), grain, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
    kernels_.matmul(matrix, inputs, y, matrix.rows, begin, end);
    if (linear.bias.empty()) return;
    const std::uint32_t first = begin * kPanelRows, last = std::min(end * kPanelRows, matrix.rows);
    for (std::size_t row = 0; row < rows; ++row) kernels_.add(y + row * matrix.rows + first, linear.bias.data() + first, last - first);
  });
}

void VisionEncoder::norm_rows(const LayerNormWeights& norm, const float* x, std::uint32_t rows, float* y) {
  const std::size_t width = config_.hidden_size;
  pool_.parallel_for(rows, 8, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
    for (std::size_t row = begin; row < end; ++row)
      layer_norm(x + row * width, norm.weight.data(), norm.bias.data(), config_.norm_epsilon, y + row * width, config_.hidden_size);
  });
}

void VisionEncoder::activate(float* values, std::uint32_t rows) {
  const std::uint32_t width = config_.intermediate_size;
  pool_.parallel_for(rows, 8, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
    for (std::size_t row = begin; row < end; ++row) {
      float* const at = values + row * width;
      switch (config_.activation) {
        case VisionActivation::gelu_tanh:
          kernels_.gelu_mul(at, ones_.data(), at, width);
          break;
        case VisionActivation::gelu_erf:
          gelu(at, width);
          break;
        case VisionActivation::quick_gelu:
          for (std::size_t i = 0; i < width; ++i) at[i] = static_cast<float>(at[i] / (1.0 + std::exp(-1.702 * at[i])));
          break;
      }
    }
  });
}

// Patches lie as the convolution's weights do: by colour, row and column. Their positions are those of whole pictures, one by one
// (transformers 4.57 moves all but the first by one; its later versions, vLLM and the models' makers do not).
void VisionEncoder::take_patches(VisionRun& run, std::uint32_t first, std::uint32_t count) {
  const std::size_t patch = config_.patch_size, side = config_.side(), image = config_.image_size;
  pool_.parallel_for(count, 4, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
    for (std::size_t i = begin; i < end; ++i) {
      const std::size_t top = (first + i) / side * patch, left = (first + i) % side * patch;
      float* to = input_.data() + i * config_.patch_values();
      for (std::size_t colour = 0; colour < 3; ++colour)
        for (std::size_t y = 0; y < patch; ++y)
          for (std::size_t x = 0; x < patch; ++x) *to++ = colours_[colour][run.pixels_[3 * ((top + y) * image + left + x) + colour]];
    }
  });
  const std::size_t at = std::size_t{first} * config_.hidden_size;
  product(weights_.patches, input_.data(), count, run.stream_.data() + at);
  kernels_.add(run.stream_.data() + at, weights_.positions.data() + at, count * config_.hidden_size);
}

void VisionEncoder::project(VisionRun& run, std::uint32_t first, std::uint32_t count) {
  const VisionLayerWeights& layer = weights_.layers[run.layer_];
  const std::size_t at = std::size_t{first} * config_.hidden_size;
  norm_rows(layer.attention_norm, run.stream_.data() + at, count, input_.data());
  product(layer.q, input_.data(), count, run.q_.data() + at);
  product(layer.k, input_.data(), count, run.k_.data() + at);
  product(layer.v, input_.data(), count, run.v_.data() + at);
}

// exp(x) is sigmoid(x) / sigmoid(-x), and the kernels have the sigmoid. A row whose scores hold a NaN becomes NaN.
void VisionEncoder::softmax(float* scores, float* scratch) const {
  const std::uint32_t count = config_.num_patches();
  const float scale = 1.0F / std::sqrt(static_cast<float>(config_.head_dim()));
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

// Keys and values of the head become matrices of two products: queries times keys, and weights times values.
void VisionEncoder::pack_head(VisionRun& run, std::uint32_t head) const {
  const std::uint32_t patches = config_.num_patches(), dim = config_.head_dim();
  const std::size_t width = config_.hidden_size, from = std::size_t{head} * dim;
  MatrixPacker keys(WeightFormat::f32, patches, dim), values(WeightFormat::f32, dim, patches);
  std::vector<float> row(patches);
  for (std::uint32_t i = 0; i < patches; ++i) keys.put_f32(i, std::span(run.k_).subspan(i * width + from, dim));
  for (std::uint32_t j = 0; j < dim; ++j) {
    for (std::size_t i = 0; i < patches; ++i) row[i] = run.v_[i * width + from + j];
    values.put_f32(j, row);
  }
  run.keys_ = keys.finish();
  run.values_ = values.finish();
}

void VisionEncoder::attend(VisionRun& run, std::uint32_t head, std::uint32_t part) {
  if (part == 0) pack_head(run, head);
  const std::uint32_t patches = config_.num_patches(), dim = config_.head_dim();
  const std::size_t width = config_.hidden_size, from = std::size_t{head} * dim;
  const std::uint32_t num_blocks = (patches + kHeadRows - 1) / kHeadRows;
  const std::uint32_t first_block = num_blocks * part / kHeadParts, end_block = num_blocks * (part + 1) / kHeadParts;
  pool_.parallel_for(end_block - first_block, 1, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t thread) {
    float* const scores = scores_.data() + std::size_t{thread} * (kHeadRows + 2) * patches;
    for (std::uint32_t block = first_block + begin; block < first_block + end; ++block) {
      const std::uint32_t first = block * kHeadRows, count = std::min(kHeadRows, patches - first);
      const std::size_t at = first * width + from;
      kernels_.matmul(run.keys_, floats(run.q_.data() + at, width, count, dim), scores, patches, 0, run.keys_.num_panels());
      for (std::size_t i = 0; i < count; ++i) softmax(scores + i * patches, scores + std::size_t{kHeadRows} * patches);
      kernels_.matmul(run.values_, floats(scores, patches, count, patches), run.attended_.data() + at, width, 0, run.values_.num_panels());
    }
  });
}

void VisionEncoder::mix(VisionRun& run, std::uint32_t first, std::uint32_t count) {
  const VisionLayerWeights& layer = weights_.layers[run.layer_];
  const std::size_t at = std::size_t{first} * config_.hidden_size;
  const std::uint32_t size = count * config_.hidden_size;
  float* const stream = run.stream_.data() + at;
  product(layer.output, run.attended_.data() + at, count, input_.data());
  kernels_.add(stream, input_.data(), size);
  norm_rows(layer.mlp_norm, stream, count, input_.data());
  product(layer.up, input_.data(), count, inner_.data());
  activate(inner_.data(), count);
  product(layer.down, inner_.data(), count, input_.data());
  kernels_.add(stream, input_.data(), size);
}

// An embedding is made of `shuffle` rows and columns of patches, one row behind the other.
void VisionEncoder::connect(VisionRun& run, std::uint32_t first, std::uint32_t count) {
  const std::size_t width = config_.hidden_size, shuffle = config_.shuffle, side = config_.side(), out_side = side / shuffle;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t top = (first + i) / out_side * shuffle, left = (first + i) % out_side * shuffle;
    for (std::size_t y = 0; y < shuffle; ++y)
      norm_rows(weights_.norm, run.stream_.data() + ((top + y) * side + left) * width, config_.shuffle,
                input_.data() + i * config_.shuffled_size() + y * shuffle * width);
  }
  product(weights_.connector, input_.data(), count, run.embeds_.data() + std::size_t{first} * config_.output_size);
}

}  // namespace quire
