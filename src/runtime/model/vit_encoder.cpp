// Pre-norm layers over all patches, and the connector that turns their outputs into embeddings. A unit of work is some rows of a product's
// inputs, or a part of a head. Units are independent, so the result has the same bits as one computation of the whole tile.
#include "runtime/model/vit_encoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace quire {
namespace {

// Returns the number of parts into which the queries of a head are split, so that a part takes a few milliseconds.
std::uint32_t head_parts(std::uint32_t patches) {
  return std::max(2U, patches / 256);
}

std::uint32_t units_of(std::uint32_t rows) {
  return (rows + kVisionUnitRows - 1) / kVisionUnitRows;
}

}  // namespace

VitEncoder::VitEncoder(const VisionConfig& config, const ImageInfo& info, VisionWeights weights, const Kernels& kernels, ThreadPool& pool)
    : VisionEncoder(config, info, kernels, pool), weights_(std::move(weights)) {
  const std::size_t widest = std::max({config.patch_values(), config.hidden_size, config.shuffled_size()});
  const std::uint32_t innermost = std::max({config.intermediate_size, config.hidden_size, config.projector ? config.output_size : 0});
  input_.resize(kVisionUnitRows * widest);
  inner_.resize(std::max<std::size_t>(std::size_t{kVisionUnitRows} * innermost, std::size_t{config.shuffle} * config.hidden_size));
  reserve_ones(std::max(innermost, config.num_rows()));
  scores_.resize(std::size_t{pool.num_threads()} * (kVisionHeadRows + 2) * config.num_rows());
}

std::uint64_t VitEncoder::workspace_bytes() const {
  const VisionConfig& c = config();
  const std::uint64_t run = std::uint64_t{5} * c.num_rows() * c.hidden_size + std::uint64_t{c.num_embeds()} * c.output_size;
  return (run + input_.size() + inner_.size() + scores_.size()) * sizeof(float) + ones_bytes();
}

void VitEncoder::start(std::unique_ptr<VisionWork>& work, const VisionTile& tile, std::vector<float>& embeds) {
  const VisionConfig& c = config();
  QUIRE_CHECK(tile.width == c.image_size && tile.height == c.image_size, "the tile has the image size of the encoder");
  if (work == nullptr) work = std::make_unique<Work>();
  auto& own = static_cast<Work&>(*work);
  own.pixels.assign(tile.rgb.begin(), tile.rgb.end());
  for (auto* values : {&own.stream, &own.q, &own.k, &own.v, &own.attended}) values->resize(std::size_t{c.num_rows()} * c.hidden_size);
  embeds.resize(std::size_t{c.num_embeds()} * c.output_size);
  own.stage = Stage::patches;
  own.layer = own.unit = 0;
}

std::uint32_t VitEncoder::num_units(Stage stage) const {
  if (stage == Stage::attend) return config().num_heads * head_parts(config().num_rows());
  return units_of(stage == Stage::connect ? config().num_embeds() : config().num_rows());
}

bool VitEncoder::step(VisionWork& work, std::span<float> embeds) {
  auto& own = static_cast<Work&>(work);
  const std::uint32_t first = own.unit * kVisionUnitRows;
  const std::uint32_t rows = own.stage == Stage::connect ? config().num_embeds() : config().num_rows();
  const std::uint32_t count = std::min(kVisionUnitRows, rows - std::min(rows, first));
  switch (own.stage) {
    case Stage::patches:
      take_patches(own, first, count);
      break;
    case Stage::project:
      project(own, first, count);
      break;
    case Stage::attend:
      attend(own, own.unit / head_parts(rows), own.unit % head_parts(rows));
      break;
    case Stage::mix:
      mix(own, first, count);
      break;
    case Stage::connect:
      connect(own, first, count, embeds.data() + std::size_t{first} * config().output_size);
      break;
    case Stage::done:
      return true;
  }
  if (++own.unit < num_units(own.stage)) return false;
  own.unit = 0;
  const bool is_last = own.stage == Stage::mix && ++own.layer == config().num_layers;
  if (own.stage == Stage::connect)
    own.stage = Stage::done;
  else if (is_last)
    own.stage = Stage::connect;
  else if (own.stage == Stage::mix)
    own.stage = Stage::project;
  else
    own.stage = static_cast<Stage>(static_cast<std::uint8_t>(own.stage) + 1);
  return own.stage == Stage::done;
}

// Writes the pixel values of patches in the order of the convolution's weights: by colour, row and column. Patches are numbered
// consecutively, as in whole images. (transformers 4.57 shifts all positions but the first by one; its later versions, vLLM and the models'
// authors do not.)
void VitEncoder::take_patches(Work& work, std::uint32_t first, std::uint32_t count) {
  const VisionConfig& c = config();
  const std::size_t patch = c.patch_size, side = c.side(), image = c.image_size;
  const std::uint32_t ahead = c.class_token ? 1 : 0;
  pool().parallel_for(count, 4, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
    for (std::size_t i = begin; i < end; ++i) {
      // The row of a class token is computed like the first patch and replaced later.
      const std::size_t number = std::max<std::size_t>(first + i, ahead) - ahead;
      const std::size_t top = number / side * patch, left = number % side * patch;
      float* to = input_.data() + i * c.patch_values();
      for (std::size_t channel = 0; channel < 3; ++channel)
        for (std::size_t y = 0; y < patch; ++y)
          for (std::size_t x = 0; x < patch; ++x) *to++ = colour(channel, work.pixels[3 * ((top + y) * image + left + x) + channel]);
    }
  });
  const std::size_t at = std::size_t{first} * c.hidden_size;
  float* const stream = work.stream.data() + at;
  product(weights_.patches, input_.data(), count, stream);
  if (first < ahead) std::ranges::copy(weights_.class_token, stream);
  kernels().add(stream, weights_.positions.data() + at, count * c.hidden_size);
  if (c.pre_norm) norm_rows(weights_.pre_norm, stream, count, stream);
}

void VitEncoder::project(Work& work, std::uint32_t first, std::uint32_t count) {
  const VisionLayerWeights& layer = weights_.layers[work.layer];
  const std::size_t at = std::size_t{first} * config().hidden_size;
  norm_rows(layer.attention_norm, work.stream.data() + at, count, input_.data());
  product(layer.q, input_.data(), count, work.q.data() + at);
  product(layer.k, input_.data(), count, work.k.data() + at);
  product(layer.v, input_.data(), count, work.v.data() + at);
}

void VitEncoder::attend(Work& work, std::uint32_t head, std::uint32_t part) {
  const std::uint32_t patches = config().num_rows(), dim = config().head_dim();
  const std::size_t width = config().hidden_size, from = std::size_t{head} * dim;
  if (part == 0) work.head = pack_head(work.k.data() + from, work.v.data() + from, width, patches, dim);
  const float scale = 1.0F / std::sqrt(static_cast<float>(dim));
  const std::uint32_t num_blocks = (patches + kVisionHeadRows - 1) / kVisionHeadRows;
  const std::uint32_t parts = head_parts(patches);
  const std::uint32_t first_block = num_blocks * part / parts, end_block = num_blocks * (part + 1) / parts;
  pool().parallel_for(end_block - first_block, 1, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t thread) {
    float* const scores = scores_.data() + std::size_t{thread} * (kVisionHeadRows + 2) * patches;
    for (std::uint32_t block = first_block + begin; block < first_block + end; ++block) {
      const std::uint32_t first = block * kVisionHeadRows, count = std::min(kVisionHeadRows, patches - first);
      const std::size_t at = first * width + from;
      kernels().matmul(work.head.keys, floats_of(work.q.data() + at, width, count, dim), scores, patches, 0, work.head.keys.num_panels());
      for (std::size_t i = 0; i < count; ++i)
        softmax(scores + i * patches, patches, scale, scores + std::size_t{kVisionHeadRows} * patches);
      kernels().matmul(work.head.values, floats_of(scores, patches, count, patches), work.attended.data() + at, width, 0,
                       work.head.values.num_panels());
    }
  });
}

void VitEncoder::mix(Work& work, std::uint32_t first, std::uint32_t count) {
  const VisionConfig& c = config();
  const VisionLayerWeights& layer = weights_.layers[work.layer];
  const std::size_t at = std::size_t{first} * c.hidden_size;
  const std::uint32_t size = count * c.hidden_size;
  float* const stream = work.stream.data() + at;
  product(layer.output, work.attended.data() + at, count, input_.data());
  kernels().add(stream, input_.data(), size);
  norm_rows(layer.mlp_norm, stream, count, input_.data());
  product(layer.up, input_.data(), count, inner_.data());
  activate(c.activation, inner_.data(), count, c.intermediate_size);
  product(layer.down, inner_.data(), count, input_.data());
  kernels().add(stream, input_.data(), size);
}

// Collects the inputs of embeddings: `shuffle` rows and columns of patches each, row by row, normed if the encoder has a final norm.
void VitEncoder::gather(const Work& work, std::uint32_t first, std::uint32_t count) {
  const VisionConfig& c = config();
  const std::size_t width = c.hidden_size, shuffle = c.shuffle, side = c.side(), out_side = side / shuffle;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t number = first + i + c.num_skipped;
    // Without shuffling, outputs are used in order, including a class token.
    const std::size_t top = shuffle == 1 ? number : number / out_side * shuffle * side;
    const std::size_t left = shuffle == 1 ? 0 : number % out_side * shuffle;
    for (std::size_t y = 0; y < shuffle; ++y) {
      const float* const from = work.stream.data() + (top + y * side + left) * width;
      float* const to = input_.data() + i * c.shuffled_size() + y * shuffle * width;
      if (c.post_norm)
        norm_rows(weights_.norm, from, c.shuffle, to);
      else
        std::copy_n(from, shuffle * width, to);
    }
  }
}

// Computes for each embedding the mean of `shuffle` rows and columns of normed patches, and norms the mean.
void VitEncoder::average(const Work& work, std::uint32_t first, std::uint32_t count) {
  const VisionConfig& c = config();
  const std::size_t width = c.hidden_size, shuffle = c.shuffle, side = c.side(), out_side = side / shuffle;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t number = first + i, top = number / out_side * shuffle * side, left = number % out_side * shuffle;
    float* const to = input_.data() + i * width;
    std::fill_n(to, width, 0.0F);
    for (std::size_t y = 0; y < shuffle; ++y) {
      norm_rows(weights_.norm, work.stream.data() + (top + y * side + left) * width, c.shuffle, inner_.data());
      for (std::size_t x = 0; x < shuffle; ++x) kernels().add(to, inner_.data() + x * width, c.hidden_size);
    }
    kernels().scale(to, 1.0F / static_cast<float>(c.shuffle * c.shuffle), c.hidden_size);
    kernels().rms_norm(to, weights_.mean_norm.data(), c.norm_epsilon, to, c.hidden_size);
  }
}

void VitEncoder::connect(const Work& work, std::uint32_t first, std::uint32_t count, float* embeds) {
  const VisionConfig& c = config();
  c.averages_patches ? average(work, first, count) : gather(work, first, count);
  if (!c.projector) return product(weights_.connector, input_.data(), count, embeds);
  product(weights_.connector, input_.data(), count, inner_.data());
  activate(*c.projector, inner_.data(), count, c.output_size);
  product(weights_.second, inner_.data(), count, embeds);
}

}  // namespace quire
