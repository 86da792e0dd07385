#pragma once
// Computes embeddings of images. A tile is encoded in units of a few milliseconds, which run between other work.
//
// The result of a tile depends only on the tile. Weights and activations are floats in every activation mode. A new kind of encoder derives
// from VisionEncoder and needs a line in load_vision_encoder().
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "quire/base/error.h"
#include "quire/base/image.h"
#include "runtime/kernel/kernel.h"
#include "runtime/model/config/vision_config.h"
#include "runtime/model/weights/vision_weights.h"

namespace quire {

inline constexpr std::uint32_t kVisionUnitRows = 32;  // number of patches per product
inline constexpr std::uint32_t kVisionHeadRows = 16;  // number of rows of scores that a thread computes at a time

// The packed keys and values of a head: queries are multiplied with `keys`, and softmax weights with `values`.
struct HeadMatrices {
  PackedMatrix keys, values;
};
// Packs the keys and values of a head: rows of `dim` floats, `stride` floats apart.
HeadMatrices pack_head(const float* keys, const float* values, std::size_t stride, std::uint32_t rows, std::uint32_t dim);

Activations floats_of(const float* x, std::size_t stride, std::uint32_t rows, std::uint32_t columns);

struct VisionTile {
  std::span<const std::uint8_t> rgb;  // [row][column][colour]
  std::uint32_t width = 0, height = 0;
};

// Intermediate data of an encoder for a tile in progress.
struct VisionWork {
  virtual ~VisionWork() = default;
};

// A tile in progress. Its buffers are reused for the next tile.
class VisionRun {
 public:
  [[nodiscard]] bool is_done() const { return is_done_; }
  // Returns the embeddings, [embedding][output_size]; valid once is_done().
  [[nodiscard]] std::span<const float> embeds() const { return embeds_; }
  // Drops the tile in progress.
  void reset() { is_done_ = true; }

 private:
  friend class VisionEncoder;

  bool is_done_ = true;
  std::unique_ptr<VisionWork> work_;
  std::vector<float> embeds_;
};

// Immutable except for its scratch memory. Used by one thread at a time, which uses the pool.
class VisionEncoder {
 public:
  VisionEncoder(const VisionConfig& config, const ImageInfo& info, const Kernels& kernels, ThreadPool& pool);
  virtual ~VisionEncoder() = default;

  [[nodiscard]] const VisionConfig& config() const { return config_; }
  [[nodiscard]] virtual std::uint64_t weight_bytes() const = 0;
  // Returns the size in bytes of a run with the largest tile, plus the buffers that all runs share.
  [[nodiscard]] virtual std::uint64_t workspace_bytes() const = 0;

  // Begin a tile; the pixels are copied. The first overload takes a tile of the config's size.
  void begin(VisionRun& run, std::span<const std::uint8_t> tile) { begin(run, {tile, config_.image_size, config_.image_size}); }
  void begin(VisionRun& run, const VisionTile& tile);
  // Runs one unit of the tile. Has no effect if the tile is done.
  void advance(VisionRun& run);

 protected:
  // Prepares `work` (null before the first tile) for a tile, and resizes `embeds` for the tile's embeddings.
  virtual void start(std::unique_ptr<VisionWork>& work, const VisionTile& tile, std::vector<float>& embeds) = 0;
  // Runs one unit and writes to `embeds`. Returns true if it was the last unit.
  virtual bool step(VisionWork& work, std::span<float> embeds) = 0;

  // Computes y = x times the matrix, plus its bias. `stride`: floats from one row of y to the next; 0: the width of a row.
  void product(const Linear& linear, const float* x, std::uint32_t rows, float* y, std::size_t stride = 0);
  void norm_rows(const LayerNormWeights& norm, const float* x, std::uint32_t rows, float* y);
  void activate(VisionActivation activation, float* values, std::uint32_t rows, std::uint32_t width);
  // Computes the softmax of one row of scores, times `scale`; `scratch` has room for `count` floats.
  void softmax(float* scores, std::uint32_t count, float scale, float* scratch) const;
  [[nodiscard]] const Kernels& kernels() const { return kernels_; }
  [[nodiscard]] ThreadPool& pool() const { return pool_; }
  // Returns the normalised input value of a pixel byte.
  [[nodiscard]] float colour(std::size_t channel, std::uint8_t byte) const { return colours_[channel][byte]; }
  // Ensures that ones() has at least `count` values.
  void reserve_ones(std::size_t count);
  [[nodiscard]] const float* ones() const { return ones_.data(); }
  [[nodiscard]] std::uint64_t ones_bytes() const { return ones_.size() * sizeof(float); }

 private:
  VisionConfig config_;
  const Kernels& kernels_;
  ThreadPool& pool_;
  std::array<std::array<float, 256>, 3> colours_;
  std::vector<float> ones_;
};

// The encoder of the config's family with its weights, and notes about the cache of packed weights. Errors: as load_weights().
struct LoadedVision {
  std::unique_ptr<VisionEncoder> encoder;
  std::vector<std::string> notes;
};
Result<LoadedVision> load_vision_encoder(const ModelFile& file, const VisionConfig& config, const ImageInfo& info, const Kernels& kernels,
                                         ThreadPool& pool, const PackingOptions& packing);

}  // namespace quire
