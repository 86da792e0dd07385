// Pre-norm layers over the patches of one image, and a merger of squares of patches. A unit of work is some rows of a product's inputs,
// some rows of a head, or some windows. Units are independent, so the result has the same bits as one computation of the whole image.
#include "runtime/model/qwen_vision_encoder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace quire {
namespace {

constexpr std::uint32_t kUnitScores = 1U << 19U;                // scores of one unit of attention
constexpr std::uint64_t kKeptBytes = std::uint64_t{64} << 20U;  // largest total size of buffers that are kept for the next image

std::uint32_t parts_of(std::uint32_t count, std::uint32_t size) {
  return (count + size - 1) / size;
}

}  // namespace

WindowOrder window_order(std::uint32_t rows, std::uint32_t columns, std::uint32_t window) {
  WindowOrder order;
  const std::uint32_t side = window == 0 ? std::max(rows, columns) : window;
  for (std::uint32_t top = 0; top < rows; top += side) {
    for (std::uint32_t left = 0; left < columns; left += side) {
      const std::uint32_t bottom = std::min(rows, top + side), right = std::min(columns, left + side);
      for (std::uint32_t row = top; row < bottom; ++row)
        for (std::uint32_t column = left; column < right; ++column) order.embeds.push_back(row * columns + column);
      order.sizes.push_back((bottom - top) * (right - left));
    }
  }
  return order;
}

struct QwenVisionEncoder::Work final : VisionWork {
  Stage stage = Stage::done;
  std::uint32_t layer = 0;
  std::uint32_t unit = 0;                            // in the current stage
  std::uint32_t num_patches = 0, embed_columns = 0;  // of the image
  std::uint32_t width = 0;                           // in pixels
  std::vector<std::uint8_t> pixels;                  // [row][column][colour]
  std::vector<std::uint32_t> embeds;                 // embeddings in the encoder's order
  std::vector<std::uint32_t> windows;                // first patch of each window, and the end
  std::vector<float> cosines, sines;                 // [row or column][head_dim / 4]
  std::vector<float> stream, qkv;  // [patch][hidden_size], [patch][3][hidden_size]; outputs of attention replace the queries
  HeadMatrices head;               // the current head, in layers where patches attend to all patches
};

QwenVisionEncoder::QwenVisionEncoder(const VisionConfig& config, const ImageInfo& info, QwenVisionWeights weights, const Kernels& kernels,
                                     ThreadPool& pool)
    : VisionEncoder(config, info, kernels, pool),
      weights_(std::move(weights)),
      max_patches_(info.tile_tokens * config.shuffle * config.shuffle),
      frequencies_(config.head_dim() / 4),
      scores_(pool.num_threads()) {
  for (std::size_t i = 0; i < frequencies_.size(); ++i)
    frequencies_[i] = static_cast<float>(std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(frequencies_.size())));
  input_.resize(std::size_t{kVisionUnitRows} *
                std::max({config.patch_values(), config.hidden_size, config.shuffled_size(), config.output_size}));
  inner_.resize(std::size_t{kVisionUnitRows} * std::max({config.intermediate_size, config.hidden_size, config.shuffled_size()}));
  gate_.resize(config.is_gated ? std::size_t{kVisionUnitRows} * config.intermediate_size : 0);
  reserve_ones(std::max(config.intermediate_size, config.shuffled_size()));
}

std::uint64_t QwenVisionEncoder::workspace_bytes() const {
  const VisionConfig& c = config();
  const std::uint64_t patches = max_patches_;
  const std::uint64_t run = patches * (4 * c.hidden_size + 2 * c.head_dim()) + patches / (c.shuffle * c.shuffle) * c.output_size;
  const std::uint64_t scores = patches * (kVisionHeadRows + 1) * scores_.size();
  return (run + scores + patches + input_.size() + inner_.size() + gate_.size()) * sizeof(float);
}

void QwenVisionEncoder::start(std::unique_ptr<VisionWork>& kept, const VisionTile& tile, std::vector<float>& embeds) {
  const VisionConfig& c = config();
  const std::uint32_t square = c.patch_size * c.shuffle, merged = c.shuffle * c.shuffle;
  QUIRE_CHECK(tile.width > 0 && tile.height > 0 && tile.width % square == 0 && tile.height % square == 0,
              "the width and height of the image are multiples of the merged patch size");
  QUIRE_CHECK(tile.rgb.size() == std::size_t{3} * tile.width * tile.height, "the image has 3 bytes per pixel");
  if (kept == nullptr) kept = std::make_unique<Work>();
  Work& work = static_cast<Work&>(*kept);
  const std::uint32_t rows = tile.height / square, columns = tile.width / square;
  work.stage = Stage::patches;
  work.layer = work.unit = 0;
  work.num_patches = rows * columns * merged;
  work.embed_columns = columns;
  work.width = tile.width;
  work.pixels.assign(tile.rgb.begin(), tile.rgb.end());
  WindowOrder order = window_order(rows, columns, c.window);
  work.embeds = std::move(order.embeds);
  work.windows.assign(1, 0);
  for (const std::uint32_t size : order.sizes) work.windows.push_back(work.windows.back() + size * merged);
  const std::size_t places = std::size_t{std::max(rows, columns)} * c.shuffle, pairs = frequencies_.size();
  work.cosines.resize(places * pairs);
  work.sines.resize(places * pairs);
  for (std::uint32_t i = 0; i < places; ++i)
    rope_angles(i, frequencies_, std::span(work.cosines).subspan(i * pairs, pairs), std::span(work.sines).subspan(i * pairs, pairs));
  work.stream.resize(std::size_t{work.num_patches} * c.hidden_size);
  work.qkv.resize(3 * work.stream.size());
  embeds.resize(std::size_t{rows} * columns * c.output_size);
  reserve_ones(work.num_patches);
}

bool QwenVisionEncoder::is_full_attention(const Work& work) const {
  const VisionConfig& c = config();
  return c.window == 0 || std::ranges::find(c.full_attention_layers, work.layer) != c.full_attention_layers.end();
}

namespace {

// Returns the number of queries in one unit of work, if a head attends to all patches.
std::uint32_t rows_of_unit(std::uint32_t num_patches, std::uint32_t num_threads) {
  return kVisionHeadRows * std::max(num_threads, kUnitScores / (kVisionHeadRows * num_patches));
}

// Returns the number of windows in one unit of work, if patches attend within windows.
std::uint32_t windows_of_unit(const VisionConfig& c) {
  const std::uint64_t side = std::uint64_t{c.window} * c.shuffle, patches = side * side;
  return static_cast<std::uint32_t>(std::max<std::uint64_t>(1, kUnitScores / (patches * patches * c.num_heads)));
}

}  // namespace

std::uint32_t QwenVisionEncoder::num_units(const Work& work) const {
  const VisionConfig& c = config();
  if (work.stage == Stage::attend && is_full_attention(work))
    return c.num_heads * parts_of(work.num_patches, rows_of_unit(work.num_patches, pool().num_threads()));
  if (work.stage == Stage::attend) return parts_of(static_cast<std::uint32_t>(work.windows.size()) - 1, windows_of_unit(c));
  return parts_of(work.stage == Stage::connect ? static_cast<std::uint32_t>(work.embeds.size()) : work.num_patches, kVisionUnitRows);
}

void QwenVisionEncoder::compute(Work& work, std::span<float> embeds) {
  const std::uint32_t first = work.unit * kVisionUnitRows;
  const std::uint32_t rows = work.stage == Stage::connect ? static_cast<std::uint32_t>(work.embeds.size()) : work.num_patches;
  const std::uint32_t count = std::min(kVisionUnitRows, rows - std::min(rows, first));
  switch (work.stage) {
    case Stage::patches:
      return take_patches(work, first, count);
    case Stage::project:
      return project(work, first, count);
    case Stage::attend:
      return is_full_attention(work) ? attend_all(work, work.unit) : attend_windows(work, work.unit);
    case Stage::mix:
      return mix(work, first, count);
    case Stage::connect:
      return connect(work, first, count, embeds);
    case Stage::done:
      return;
  }
}

bool QwenVisionEncoder::step(VisionWork& kept, std::span<float> embeds) {
  Work& work = static_cast<Work&>(kept);
  compute(work, embeds);
  if (++work.unit < num_units(work)) return false;
  work.unit = 0;
  const bool is_last = work.stage == Stage::mix && ++work.layer == config().num_layers;
  if (work.stage == Stage::connect)
    work.stage = Stage::done;
  else if (work.stage == Stage::mix && !is_last)
    work.stage = Stage::project;
  else
    work.stage = static_cast<Stage>(static_cast<std::uint8_t>(work.stage) + 1);
  if (work.stage != Stage::done) return false;
  if (work.qkv.capacity() * sizeof(float) > kKeptBytes) {
    work.stream = work.qkv = {};
    for (std::vector<float>& scores : scores_) scores = {};
  }
  return true;
}

// Norms rows. A norm without a bias is an RMS norm.
void QwenVisionEncoder::norm(const LayerNormWeights& weights, const float* x, std::uint32_t rows, float* y) {
  if (!weights.bias.empty()) return norm_rows(weights, x, rows, y);
  const std::uint32_t width = config().hidden_size;
  pool().parallel_for(rows, 8, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
    for (std::size_t row = begin; row < end; ++row)
      kernels().rms_norm(x + row * width, weights.weight.data(), config().norm_epsilon, y + row * width, width);
  });
}

// Writes the pixel values of patches in the order of the convolution's weights: by colour, frame, row and column. With a separate matrix
// per frame, the order is by colour, row and column. All frames of an image are the same.
void QwenVisionEncoder::take_patches(Work& work, std::uint32_t first, std::uint32_t count) {
  const VisionConfig& c = config();
  const std::size_t patch = c.patch_size, shuffle = c.shuffle, merged = shuffle * shuffle;
  const std::size_t frames = c.frames / weights_.patches.size();
  pool().parallel_for(count, 4, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
    for (std::size_t i = begin; i < end; ++i) {
      const std::size_t embed = work.embeds[(first + i) / merged], within = (first + i) % merged;
      const std::size_t top = (embed / work.embed_columns * shuffle + within / shuffle) * patch;
      const std::size_t left = (embed % work.embed_columns * shuffle + within % shuffle) * patch;
      float* to = input_.data() + i * weights_.patches.front().matrix.columns;
      for (std::size_t channel = 0; channel < 3; ++channel)
        for (std::size_t frame = 0; frame < frames; ++frame)
          for (std::size_t y = 0; y < patch; ++y)
            for (std::size_t x = 0; x < patch; ++x) *to++ = colour(channel, work.pixels[3 * ((top + y) * work.width + left + x) + channel]);
    }
  });
  float* const stream = work.stream.data() + std::size_t{first} * c.hidden_size;
  product(weights_.patches.front(), input_.data(), count, stream);
  for (const Linear& later : std::span(weights_.patches).subspan(1)) {
    product(later, input_.data(), count, inner_.data());
    kernels().add(stream, inner_.data(), count * c.hidden_size);
  }
}

void QwenVisionEncoder::project(Work& work, std::uint32_t first, std::uint32_t count) {
  const QwenVisionLayerWeights& layer = weights_.layers[work.layer];
  const std::size_t width = config().hidden_size;
  norm(layer.attention_norm, work.stream.data() + first * width, count, input_.data());
  float* to = work.qkv.data() + 3 * first * width;
  for (const Linear* part : {&layer.queries, &layer.keys, &layer.values}) {
    product(*part, input_.data(), count, to, 3 * width);
    to += width;
  }
  pool().parallel_for(count, 4, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
    for (std::uint32_t i = begin; i < end; ++i) apply_rope(work, first + i);
  });
}

// Applies the rotary embedding: half of the pairs of a head rotate by the patch's row, and half by its column.
void QwenVisionEncoder::apply_rope(Work& work, std::uint32_t patch) const {
  const VisionConfig& c = config();
  const std::uint32_t merged = c.shuffle * c.shuffle, embed = work.embeds[patch / merged], within = patch % merged;
  const std::size_t row = embed / work.embed_columns * c.shuffle + within / c.shuffle;
  const std::size_t column = embed % work.embed_columns * c.shuffle + within % c.shuffle;
  const auto pairs = static_cast<std::ptrdiff_t>(frequencies_.size());
  std::array<float, kMaxVisionHeadDim / 2> cosines, sines;
  for (const auto& [from, to] : {std::pair(&work.cosines, &cosines), std::pair(&work.sines, &sines)}) {
    std::copy_n(from->begin() + static_cast<std::ptrdiff_t>(row) * pairs, pairs, to->begin());
    std::copy_n(from->begin() + static_cast<std::ptrdiff_t>(column) * pairs, pairs, to->begin() + pairs);
  }
  kernels().rope(RopeStyle::half_split, work.qkv.data() + std::size_t{3} * patch * c.hidden_size, 2 * c.num_heads, c.head_dim(),
                 c.head_dim(), cosines.data(), sines.data());
}

// Attends from rows [first, first + count) of a head to the packed keys and values. The result replaces the queries.
void QwenVisionEncoder::attend(Work& work, const PackedMatrix& keys, const PackedMatrix& values, std::uint32_t head, std::uint32_t first,
                               std::uint32_t count, std::uint32_t thread) {
  const std::uint32_t dim = config().head_dim(), seen = keys.rows;
  const std::size_t stride = std::size_t{3} * config().hidden_size;
  std::vector<float>& own = scores_[thread];
  if (own.size() < std::size_t{kVisionHeadRows + 1} * seen) own.resize(std::size_t{kVisionHeadRows + 1} * seen);
  float* const scores = own.data();
  float* const rows = work.qkv.data() + first * stride + std::size_t{head} * dim;
  kernels().matmul(keys, floats_of(rows, stride, count, dim), scores, seen, 0, keys.num_panels());
  const float scale = 1.0F / std::sqrt(static_cast<float>(dim));
  for (std::size_t i = 0; i < count; ++i) softmax(scores + i * seen, seen, scale, scores + std::size_t{kVisionHeadRows} * seen);
  kernels().matmul(values, floats_of(scores, seen, count, seen), rows, stride, 0, values.num_panels());
}

void QwenVisionEncoder::attend_all(Work& work, std::uint32_t unit) {
  const VisionConfig& c = config();
  const std::uint32_t rows = rows_of_unit(work.num_patches, pool().num_threads()), parts = parts_of(work.num_patches, rows);
  const std::uint32_t head = unit / parts, first = unit % parts * rows, end = std::min(work.num_patches, first + rows);
  if (first == 0) {
    const float* const q = work.qkv.data() + std::size_t{head} * c.head_dim();
    work.head =
        pack_head(q + c.hidden_size, q + std::size_t{2} * c.hidden_size, std::size_t{3} * c.hidden_size, work.num_patches, c.head_dim());
  }
  pool().parallel_for(parts_of(end - first, kVisionHeadRows), 1, [&](std::uint32_t begin, std::uint32_t stop, std::uint32_t thread) {
    for (std::uint32_t at = first + begin * kVisionHeadRows; at < std::min(end, first + stop * kVisionHeadRows); at += kVisionHeadRows)
      attend(work, work.head.keys, work.head.values, head, at, std::min(kVisionHeadRows, end - at), thread);
  });
}

void QwenVisionEncoder::attend_windows(Work& work, std::uint32_t unit) {
  const VisionConfig& c = config();
  const auto num_windows = static_cast<std::uint32_t>(work.windows.size()) - 1;
  const std::uint32_t size = windows_of_unit(c), first = unit * size, count = std::min(size, num_windows - first);
  const std::size_t stride = std::size_t{3} * c.hidden_size;
  pool().parallel_for(count * c.num_heads, 1, [&](std::uint32_t begin, std::uint32_t stop, std::uint32_t thread) {
    for (; begin < stop; ++begin) {
      const std::uint32_t window = first + begin / c.num_heads, head = begin % c.num_heads;
      const std::uint32_t from = work.windows[window], end = work.windows[window + 1];
      const float* const k = work.qkv.data() + from * stride + c.hidden_size + std::size_t{head} * c.head_dim();
      const HeadMatrices packed = pack_head(k, k + c.hidden_size, stride, end - from, c.head_dim());
      for (std::uint32_t at = from; at < end; at += kVisionHeadRows)
        attend(work, packed.keys, packed.values, head, at, std::min(kVisionHeadRows, end - at), thread);
    }
  });
}

void QwenVisionEncoder::mix(Work& work, std::uint32_t first, std::uint32_t count) {
  const VisionConfig& c = config();
  const QwenVisionLayerWeights& layer = weights_.layers[work.layer];
  const std::size_t width = c.hidden_size;
  float* const stream = work.stream.data() + first * width;
  for (std::size_t i = 0; i < count; ++i) std::copy_n(work.qkv.data() + 3 * (first + i) * width, width, inner_.data() + i * width);
  product(layer.output, inner_.data(), count, input_.data());
  kernels().add(stream, input_.data(), count * c.hidden_size);
  norm(layer.mlp_norm, stream, count, input_.data());
  product(layer.up, input_.data(), count, inner_.data());
  if (c.is_gated) {
    product(layer.gate, input_.data(), count, gate_.data());
    pool().parallel_for(count, 8, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
      for (std::size_t at = std::size_t{begin} * c.intermediate_size; begin < end; ++begin, at += c.intermediate_size)
        kernels().silu_mul(gate_.data() + at, inner_.data() + at, inner_.data() + at, c.intermediate_size);
    });
  } else {
    activate(c.activation, inner_.data(), count, c.intermediate_size);
  }
  product(layer.down, inner_.data(), count, input_.data());
  kernels().add(stream, input_.data(), count * c.hidden_size);
}

// Computes embeddings from merged patches. The patches of an embedding are adjacent.
void QwenVisionEncoder::connect(Work& work, std::uint32_t first, std::uint32_t count, std::span<float> embeds) {
  const VisionConfig& c = config();
  const std::uint32_t merged = c.shuffle * c.shuffle;
  norm(weights_.norm, work.stream.data() + std::size_t{first} * c.shuffled_size(), count * merged, input_.data());
  product(weights_.merged, input_.data(), count, inner_.data());
  activate(VisionActivation::gelu_erf, inner_.data(), count, c.shuffled_size());
  product(weights_.connector, inner_.data(), count, input_.data());
  for (std::size_t i = 0; i < count; ++i)
    std::copy_n(input_.data() + i * c.output_size, c.output_size, embeds.data() + std::size_t{work.embeds[first + i]} * c.output_size);
}

}  // namespace quire
