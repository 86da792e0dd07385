#pragma once
// Embeddings of pictures: a tile goes through the encoder in units of a few milliseconds, so that it can be computed between other things.
//
// What a tile gives depends on the tile alone. Weights are floats, and so are activations, whatever mode the decoder has. A family whose
// encoder is another kind of network derives from VisionEncoder, and has a line in load_vision_encoder().
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "quire/base/error.h"
#include "quire/base/picture.h"
#include "runtime/kernel/kernel.h"
#include "runtime/model/config/vision_config.h"
#include "runtime/model/weights/vision_weights.h"

namespace quire {

inline constexpr std::uint32_t kVisionUnitRows = 32;  // patches that go through products together
inline constexpr std::uint32_t kVisionHeadRows = 16;  // whose scores a thread has at once

// Of a head: what queries are multiplied with, and what the weights of their scores are.
struct HeadMatrices {
  PackedMatrix keys, values;
};
// Rows of `dim` floats, `stride` floats apart.
HeadMatrices pack_head(const float* keys, const float* values, std::size_t stride, std::uint32_t rows, std::uint32_t dim);

Activations floats_of(const float* x, std::size_t stride, std::uint32_t rows, std::uint32_t columns);

struct VisionTile {
  std::span<const std::uint8_t> rgb;  // [row][column][colour]
  std::uint32_t width = 0, height = 0;
};

// What an encoder keeps of a tile that is under way.
struct VisionWork {
  virtual ~VisionWork() = default;
};

// One tile under way. Its buffers are used again for the next one.
class VisionRun {
 public:
  [[nodiscard]] bool is_done() const { return is_done_; }
  // [embedding][output_size], when it is done.
  [[nodiscard]] std::span<const float> embeds() const { return embeds_; }
  // What is under way is given up.
  void reset() { is_done_ = true; }

 private:
  friend class VisionEncoder;

  bool is_done_ = true;
  std::unique_ptr<VisionWork> work_;
  std::vector<float> embeds_;
};

// Immutable but for its scratch: one thread at a time, with the pool.
class VisionEncoder {
 public:
  VisionEncoder(const VisionConfig& config, const PictureInfo& info, const Kernels& kernels, ThreadPool& pool);
  virtual ~VisionEncoder() = default;

  [[nodiscard]] const VisionConfig& config() const { return config_; }
  [[nodiscard]] virtual std::uint64_t weight_bytes() const = 0;
  // Of a run with the largest tile, and of what all share.
  [[nodiscard]] virtual std::uint64_t workspace_bytes() const = 0;

  // The tile is copied. One of the size that the config says, or of its own.
  void begin(VisionRun& run, std::span<const std::uint8_t> tile) { begin(run, {tile, config_.image_size, config_.image_size}); }
  void begin(VisionRun& run, const VisionTile& tile);
  // One unit of it, if it is not done.
  void advance(VisionRun& run);

 protected:
  // Makes the work (null at first) ready for a tile, whose embeddings are written to `embeds`, which it sizes.
  virtual void start(std::unique_ptr<VisionWork>& work, const VisionTile& tile, std::vector<float>& embeds) = 0;
  // One unit; true: it was the last one.
  virtual bool step(VisionWork& work, std::span<float> embeds) = 0;

  // y = x times the matrix, and its bias. `stride`: from one row of y to the next; 0: as wide as they are.
  void product(const Linear& linear, const float* x, std::uint32_t rows, float* y, std::size_t stride = 0);
  void norm_rows(const LayerNormWeights& norm, const float* x, std::uint32_t rows, float* y);
  void activate(VisionActivation activation, float* values, std::uint32_t rows, std::uint32_t width);
  // Of one row; `scratch` has room for as many.
  void softmax(float* scores, std::uint32_t count, float scale, float* scratch) const;
  [[nodiscard]] const Kernels& kernels() const { return kernels_; }
  [[nodiscard]] ThreadPool& pool() const { return pool_; }
  // What a byte of a picture is to the encoder.
  [[nodiscard]] float colour(std::size_t channel, std::uint8_t byte) const { return colours_[channel][byte]; }
  // At least so many ones are there for what follows.
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

// The encoder of the config's family, with its weights, and notes on keeping these. Errors: as load_weights().
struct LoadedVision {
  std::unique_ptr<VisionEncoder> encoder;
  std::vector<std::string> notes;
};
Result<LoadedVision> load_vision_encoder(const ModelFile& file, const VisionConfig& config, const PictureInfo& info, const Kernels& kernels,
                                         ThreadPool& pool, const PackingOptions& packing);

}  // namespace quire
