// Collects the tensors of Qwen's image encoders by name and shape.
#include "runtime/model/weights/qwen_vision_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "runtime/model/weights/task_collector.h"

namespace quire {
namespace {

// Collects queries, keys and values. Folders store them as one matrix, GGUF files as three matrices.
void collect_attention(TaskCollector& collector, const VisionConfig& c, const std::string& at, QwenVisionLayerWeights& layer) {
  const std::array parts{&layer.queries, &layer.keys, &layer.values};
  if (collector.has(at + "qkv.weight")) return collector.stacked(at + "qkv", c.hidden_size, c.hidden_size, parts);
  for (std::size_t i = 0; i < parts.size(); ++i)
    collector.linear(fmt::format("{}{}", at, "qkv"[i]), c.hidden_size, c.hidden_size, *parts[i]);
}

// Collects the patch embedding. GGUF files have one matrix for each frame.
void collect_patches(TaskCollector& collector, const VisionConfig& c, std::vector<Linear>& out) {
  const std::string at = "visual.patch_embed.";
  out.resize(collector.has(at + "0.weight") ? c.frames : 1);
  if (out.size() == 1) return collector.convolution(at + "proj", c.hidden_size, c.patch_values(), out.front(), false);
  for (std::uint32_t i = 0; i < c.frames; ++i)
    collector.convolution(fmt::format("{}{}", at, i), c.hidden_size, c.patch_values() / c.frames, out[i], false);
}

void collect_layer(TaskCollector& collector, const VisionConfig& c, const std::string& at, QwenVisionLayerWeights& layer) {
  const auto norm = [&](const std::string& name, LayerNormWeights& out) {
    collector.vector(name + ".weight", c.hidden_size, out.weight);
    if (!c.is_gated) collector.vector(name + ".bias", c.hidden_size, out.bias);
  };
  norm(at + "norm1", layer.attention_norm);
  norm(at + "norm2", layer.mlp_norm);
  collect_attention(collector, c, at + "attn.", layer);
  collector.linear(at + "attn.proj", c.hidden_size, c.hidden_size, layer.output);
  if (c.is_gated) collector.linear(at + "mlp.gate_proj", c.intermediate_size, c.hidden_size, layer.gate);
  collector.linear(at + (c.is_gated ? "mlp.up_proj" : "mlp.fc1"), c.intermediate_size, c.hidden_size, layer.up);
  collector.linear(at + (c.is_gated ? "mlp.down_proj" : "mlp.fc2"), c.hidden_size, c.intermediate_size, layer.down);
}

}  // namespace

std::uint64_t QwenVisionWeights::bytes() const {
  std::uint64_t sum = merged.bytes() + connector.bytes();
  for (const Linear& linear : patches) sum += linear.bytes();
  for (const QwenVisionLayerWeights& layer : layers)
    for (const Linear* linear : {&layer.queries, &layer.keys, &layer.values, &layer.output, &layer.gate, &layer.up, &layer.down})
      sum += linear->bytes();
  return sum;
}

Result<QwenVisionWeights> load_qwen_vision(const ModelFile& file, const VisionConfig& c, ThreadPool& pool, const PackingOptions& options) {
  auto tensors = file.vision_tensors();
  if (!tensors) return std::unexpected(std::move(tensors.error()));
  if (Result<void> plain = check_plain(*tensors); !plain) return std::unexpected(std::move(plain.error()));
  TaskCollector collector(file, std::move(*tensors), "the image encoder of the model");
  QwenVisionWeights out;
  collect_patches(collector, c, out.patches);
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
