#pragma once
// What a request has besides its tokens, for the encoders of a model, and where a worker finds it: plans only count it.
#include <memory>
#include <span>
#include <vector>

#include "quire/base/ids.h"
#include "quire/base/multimodal.h"
#include "runtime/worker/prompt_pictures.h"

namespace quire {

// One of the two, as the model is.
struct RequestInputs {
  std::shared_ptr<const PromptPictures> pictures{};  // null: it shows none
  std::shared_ptr<const EncoderInput> sound{};       // what an encoder reads whose output goes to the KV cache
  std::vector<MultimodalFeature> heard{};            // that one, as the core is told

  // As the core is told of them.
  [[nodiscard]] std::span<const MultimodalFeature> features() const { return pictures != nullptr ? pictures->features : heard; }
};

class EncoderSource {
 public:
  virtual ~EncoderSource() = default;
  // Of a request that a plan admits; null: it has none. Called on the thread that leads a step, which must not wait.
  [[nodiscard]] virtual std::shared_ptr<const RequestInputs> find(RequestId id) const = 0;
};

}  // namespace quire
