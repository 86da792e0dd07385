// Names and shapes of the tensors of Qwen's encoders.
#include "runtime/model/weights/qwen_vision_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/model/weights/task_collector.h"

namespace quire {
namespace {

void collect_layer(TaskCollector& collector, const VisionConfig& c, const std::string& at, QwenVisionLayerWeights& layer) {
  const auto norm = [&](const std::string& name, LayerNormWeights& out) {
    collector.vector(name + ".weight", c.hidden_size, out.weight);
    if (!c.is_gated) collector.vector(name + ".bias", c.hidden_size, out.bias);
  };
  norm(at + "norm1", layer.attention_norm);
  norm(at + "norm2", layer.mlp_norm);
  collector.linear(at + "attn.qkv", 3 * c.hidden_size, c.hidden_size, layer.qkv);
  collector.linear(at + "attn.proj", c.hidden_size, c.hidden_size, layer.output);
  if (c.is_gated) collector.linear(at + "mlp.gate_proj", c.intermediate_size, c.hidden_size, layer.gate);
  collector.linear(at + (c.is_gated ? "mlp.up_proj" : "mlp.fc1"), c.intermediate_size, c.hidden_size, layer.up);
  collector.linear(at + (c.is_gated ? "mlp.down_proj" : "mlp.fc2"), c.hidden_size, c.intermediate_size, layer.down);
}

}  // namespace

std::uint64_t QwenVisionWeights::bytes() const {
  std::uint64_t sum = patches.bytes() + merged.bytes() + connector.bytes();
  for (const QwenVisionLayerWeights& layer : layers)
    for (const Linear* linear : {&layer.qkv, &layer.output, &layer.gate, &layer.up, &layer.down}) sum += linear->bytes();
  return sum;
}

Result<QwenVisionWeights> load_qwen_vision(const ModelFile& file, const VisionConfig& c, ThreadPool& pool, const PackingOptions& options) {
  auto tensors = file.vision_tensors();
  if (!tensors) return std::unexpected(std::move(tensors.error()));
  if (Result<void> plain = check_plain(*tensors); !plain) return std::unexpected(std::move(plain.error()));
  TaskCollector collector(file, std::move(*tensors), "the model's encoder of pictures");
  QwenVisionWeights out;
  collector.convolution("visual.patch_embed.proj", c.hidden_size, c.patch_values(), out.patches, false);
  out.layers.resize(c.num_layers);
  for (std::uint32_t i = 0; i < c.num_layers; ++i) collect_layer(collector, c, fmt::format("visual.blocks.{}.", i), out.layers[i]);
  collector.vector("visual.merger.ln_q.weight", c.hidden_size, out.norm.weight);
  if (!c.is_gated) collector.vector("visual.merger.ln_q.bias", c.hidden_size, out.norm.bias);
  collector.linear("visual.merger.mlp.0", c.shuffled_size(), c.shuffled_size(), out.merged);
  collector.linear("visual.merger.mlp.2", c.output_size, c.shuffled_size(), out.connector);
  auto tasks = collector.finish();
  if (!tasks) return std::unexpected(std::move(tasks.error()));
  auto packed = pack_weights(file, *tasks, pool, options);
  if (!packed) return std::unexpected(std::move(packed.error()));
  out.notes = std::move(packed->notes);
  return out;
}

}  // namespace quire
