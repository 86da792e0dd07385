#pragma once
// Images and audio of a request for the encoders of a model, and the interface for looking them up. Plans refer to images and audio only by
// index.
#include <memory>
#include <span>
#include <vector>

#include "quire/base/ids.h"
#include "quire/base/multimodal.h"
#include "runtime/worker/prompt_images.h"

namespace quire {

// Holds either images or audio, depending on the model.
struct RequestInputs {
  std::shared_ptr<const PromptImages> pictures{};   // null: no images
  std::shared_ptr<const EncoderInput> audio{};      // audio for an encoder that writes its output to the KV cache
  std::vector<MultimodalFeature> audio_features{};  // identifiers and positions of the audio in the prompt

  // Returns the identifiers and the positions of the inputs in the prompt.
  [[nodiscard]] std::span<const MultimodalFeature> features() const { return pictures != nullptr ? pictures->features : audio_features; }
};

class EncoderSource {
 public:
  virtual ~EncoderSource() = default;
  // Returns the inputs of a request that a plan admits, or null if the request has none. Called on the thread that leads a step; must not
  // wait.
  [[nodiscard]] virtual std::shared_ptr<const RequestInputs> find(RequestId id) const = 0;
};

}  // namespace quire
