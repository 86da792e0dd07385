#include "runtime/model/adapter.h"

namespace quire {

std::uint64_t Adapter::bytes() const {
  std::uint64_t sum = embedding_a.size() * sizeof(float) + embedding.bytes() + head.bytes();
  for (const LayerAdapter& layer : layers)
    for (const LowRank* part : {&layer.q, &layer.k, &layer.v, &layer.attn_output, &layer.gate, &layer.up, &layer.down})
      sum += part->bytes();
  return sum;
}

Result<std::shared_ptr<const Adapter>> load_adapter(const std::string& /*folder*/, const ModelConfig& /*config*/, std::uint32_t /*rank*/) {
  return fail(ErrorCode::unsupported, "lora_path", "adapters are not read by this build");
}

}  // namespace quire
