#pragma once
// Embeddings of pictures: a tile goes through the encoder in units of a few milliseconds, so that it can be computed between other things.
//
// What a tile gives depends on the tile alone. Weights are floats, and so are activations, whatever mode the decoder has.
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "quire/picture.h"
#include "runtime/kernel/kernel.h"
#include "runtime/model/config/vision_config.h"
#include "runtime/model/weights/vision_weights.h"

namespace quire {

// One tile under way. Its buffers are used again for the next one.
class VisionRun {
 public:
  [[nodiscard]] bool is_done() const { return stage_ == Stage::done; }
  // [VisionConfig::num_embeds()][output_size], when it is done.
  [[nodiscard]] std::span<const float> embeds() const { return embeds_; }
  // What is under way is given up.
  void reset() { stage_ = Stage::done; }

 private:
  friend class VisionEncoder;
  enum class Stage : std::uint8_t { patches, project, attend, mix, connect, done };

  Stage stage_ = Stage::done;
  std::uint32_t layer_ = 0;
  std::uint32_t unit_ = 0;                            // of the stage
  std::vector<std::uint8_t> pixels_;                  // [row][column][colour]
  std::vector<float> stream_, q_, k_, v_, attended_;  // [patch][hidden_size]
  PackedMatrix keys_, values_;                        // of the head under way
  std::vector<float> embeds_;
};

// Immutable but for its scratch: one thread at a time, with the pool.
class VisionEncoder {
 public:
  VisionEncoder(const VisionConfig& config, const PictureInfo& info, VisionWeights weights, const Kernels& kernels, ThreadPool& pool);

  [[nodiscard]] const VisionConfig& config() const { return config_; }
  [[nodiscard]] std::uint64_t weight_bytes() const { return weights_.bytes(); }
  // Of a run, and of what all share.
  [[nodiscard]] std::uint64_t workspace_bytes() const;

  // The tile is copied.
  void begin(VisionRun& run, std::span<const std::uint8_t> tile) const;
  // One unit of it, if it is not done.
  void advance(VisionRun& run);

 private:
  using Stage = VisionRun::Stage;

  [[nodiscard]] std::uint32_t num_units(Stage stage) const;
  void take_patches(VisionRun& run, std::uint32_t first, std::uint32_t count);
  void project(VisionRun& run, std::uint32_t first, std::uint32_t count);
  void pack_head(VisionRun& run, std::uint32_t head) const;
  void attend(VisionRun& run, std::uint32_t head, std::uint32_t part);
  void mix(VisionRun& run, std::uint32_t first, std::uint32_t count);
  void connect(VisionRun& run, std::uint32_t first, std::uint32_t count);
  // y = x times the matrix, and its bias.
  void product(const Linear& linear, const float* x, std::uint32_t rows, float* y);
  void norm_rows(const LayerNormWeights& norm, const float* x, std::uint32_t rows, float* y);
  void activate(float* values, std::uint32_t rows);
  void softmax(float* scores, float* scratch) const;

  VisionConfig config_;
  VisionWeights weights_;
  const Kernels& kernels_;
  ThreadPool& pool_;
  std::array<std::array<float, 256>, 3> colours_;  // what a byte is to the encoder, by colour
  std::vector<float> input_, inner_, ones_;        // [kUnitRows] of what goes into a product, and into the second of two
  std::vector<float> scores_;                      // [thread][kHeadRows + 2][patch]
};

}  // namespace quire
