#pragma once
// The encoders of Qwen2-VL and Qwen2.5-VL. An image of any size is one tile. Rotary positions are the patch's row and column. The patches
// of a square that is merged to one embedding are adjacent. In most layers of Qwen2.5-VL, patches attend only to their window.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/model/vision_encoder.h"
#include "runtime/model/weights/qwen_vision_weights.h"

namespace quire {

// The encoder's order of embeddings: embeds[i] is the row-major index of its i-th embedding, and sizes[i] the number of embeddings in
// window i.
struct WindowOrder {
  std::vector<std::uint32_t> embeds;
  std::vector<std::uint32_t> sizes;
};

// Returns the order for windows of `window` x `window` embeddings; 0: one window for the whole image.
[[nodiscard]] WindowOrder window_order(std::uint32_t rows, std::uint32_t columns, std::uint32_t window);

class QwenVisionEncoder final : public VisionEncoder {
 public:
  QwenVisionEncoder(const VisionConfig& config, const ImageInfo& info, QwenVisionWeights weights, const Kernels& kernels, ThreadPool& pool);

  [[nodiscard]] std::uint64_t weight_bytes() const override { return weights_.bytes(); }
  [[nodiscard]] std::uint64_t workspace_bytes() const override;

 private:
  enum class Stage : std::uint8_t { patches, project, attend, mix, connect, done };
  struct Work;

  void start(std::unique_ptr<VisionWork>& work, const VisionTile& tile, std::vector<float>& embeds) override;
  bool step(VisionWork& work, std::span<float> embeds) override;

  void compute(Work& work, std::span<float> embeds);
  [[nodiscard]] std::uint32_t num_units(const Work& work) const;
  [[nodiscard]] bool is_full_attention(const Work& work) const;
  void take_patches(Work& work, std::uint32_t first, std::uint32_t count);
  void project(Work& work, std::uint32_t first, std::uint32_t count);
  void apply_rope(Work& work, std::uint32_t patch) const;
  void attend_all(Work& work, std::uint32_t unit);
  void attend_windows(Work& work, std::uint32_t unit);
  void attend(Work& work, const PackedMatrix& keys, const PackedMatrix& values, std::uint32_t head, std::uint32_t first,
              std::uint32_t count, std::uint32_t thread);
  void mix(Work& work, std::uint32_t first, std::uint32_t count);
  void connect(Work& work, std::uint32_t first, std::uint32_t count, std::span<float> embeds);
  void norm(const LayerNormWeights& weights, const float* x, std::uint32_t rows, float* y);

  QwenVisionWeights weights_;
  std::uint32_t max_patches_;
  std::vector<float> frequencies_;           // [head_dim / 4], for rows and for columns
  std::vector<float> input_, inner_, gate_;  // [kVisionUnitRows]: inputs of a product, inputs of the second of two products, and gates
  std::vector<std::vector<float>> scores_;   // [thread][kVisionHeadRows + 1][patch]
};

}  // namespace quire
