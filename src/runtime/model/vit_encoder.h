#pragma once
// Encoders with the SigLIP and CLIP architectures, for images of one size.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/model/vision_encoder.h"

namespace quire {

class VitEncoder final : public VisionEncoder {
 public:
  VitEncoder(const VisionConfig& config, const ImageInfo& info, VisionWeights weights, const Kernels& kernels, ThreadPool& pool);

  [[nodiscard]] std::uint64_t weight_bytes() const override { return weights_.bytes(); }
  [[nodiscard]] std::uint64_t workspace_bytes() const override;

 private:
  enum class Stage : std::uint8_t { patches, project, attend, mix, connect, done };

  struct Work final : VisionWork {
    Stage stage = Stage::done;
    std::uint32_t layer = 0;
    std::uint32_t unit = 0;                        // in the current stage
    std::vector<std::uint8_t> pixels;              // [row][column][colour]
    std::vector<float> stream, q, k, v, attended;  // [patch][hidden_size]
    HeadMatrices head;                             // the current head
  };

  void start(std::unique_ptr<VisionWork>& work, const VisionTile& tile, std::vector<float>& embeds) override;
  bool step(VisionWork& work, std::span<float> embeds) override;

  [[nodiscard]] std::uint32_t num_units(Stage stage) const;
  void take_patches(Work& work, std::uint32_t first, std::uint32_t count);
  void project(Work& work, std::uint32_t first, std::uint32_t count);
  void attend(Work& work, std::uint32_t head, std::uint32_t part);
  void mix(Work& work, std::uint32_t first, std::uint32_t count);
  void gather(const Work& work, std::uint32_t first, std::uint32_t count);   // writes to input_
  void average(const Work& work, std::uint32_t first, std::uint32_t count);  // writes to input_
  void connect(const Work& work, std::uint32_t first, std::uint32_t count, float* embeds);

  VisionWeights weights_;
  std::vector<float> input_, inner_;  // [kVisionUnitRows]: inputs of a product, and inputs of the second of two products
  std::vector<float> scores_;         // [thread][kVisionHeadRows + 2][patch]
};

}  // namespace quire
