// Names and shapes of the tensors that belong to the encoder.
#include "runtime/model/weights/vision_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/model/weights/task_collector.h"

namespace quire {
namespace {

void collect_norm(TaskCollector& collector, const std::string& name, std::uint32_t size, LayerNormWeights& out) {
  collector.vector(name + ".weight", size, out.weight);
  collector.vector(name + ".bias", size, out.bias);
}

std::uint64_t linear_bytes(const Linear& linear) {
  return linear.matrix.bytes() + linear.bias.size() * sizeof(float);
}

}  // namespace

std::uint64_t VisionWeights::bytes() const {
  std::uint64_t sum = linear_bytes(patches) + linear_bytes(connector) + positions.size() * sizeof(float);
  for (const VisionLayerWeights& layer : layers)
    for (const Linear* linear : {&layer.q, &layer.k, &layer.v, &layer.output, &layer.up, &layer.down}) sum += linear_bytes(*linear);
  return sum;
}

Result<VisionWeights> load_vision(const ModelFile& file, const VisionConfig& c, ThreadPool& pool) {
  auto tensors = file.vision_tensors();
  if (!tensors) return std::unexpected(std::move(tensors.error()));
  if (const auto quantised = std::ranges::find_if(*tensors, [](const TensorView& view) { return view.quantised != nullptr; });
      quantised != tensors->end())
    return fail(ErrorCode::unsupported, quantised->name, "is quantised, and encoders of pictures are not",
                "use the folder's F32, F16 or BF16 form");
  TaskCollector collector(file, std::move(*tensors), "the model's encoder of pictures");
  VisionWeights out;
  const std::string tower = "vision_model.";
  collector.convolution(tower + "embeddings.patch_embedding", c.hidden_size, c.patch_values(), out.patches);
  collector.floats(tower + "embeddings.position_embedding.weight", c.num_patches() * c.hidden_size, out.positions);
  out.layers.resize(c.num_layers);
  for (std::uint32_t i = 0; i < c.num_layers; ++i) {
    VisionLayerWeights& layer = out.layers[i];
    const std::string at = fmt::format("{}encoder.layers.{}.", tower, i);
    collect_norm(collector, at + "layer_norm1", c.hidden_size, layer.attention_norm);
    collect_norm(collector, at + "layer_norm2", c.hidden_size, layer.mlp_norm);
    collector.linear(at + "self_attn.q_proj", c.hidden_size, c.hidden_size, layer.q);
    collector.linear(at + "self_attn.k_proj", c.hidden_size, c.hidden_size, layer.k);
    collector.linear(at + "self_attn.v_proj", c.hidden_size, c.hidden_size, layer.v);
    collector.linear(at + "self_attn.out_proj", c.hidden_size, c.hidden_size, layer.output);
    collector.linear(at + "mlp.fc1", c.intermediate_size, c.hidden_size, layer.up);
    collector.linear(at + "mlp.fc2", c.hidden_size, c.intermediate_size, layer.down);
  }
  collect_norm(collector, tower + "post_layernorm", c.hidden_size, out.norm);
  collector.matrix("connector.modality_projection.proj.weight", c.output_size, c.shuffled_size(), out.connector.matrix);
  auto tasks = collector.finish();
  if (!tasks) return std::unexpected(std::move(tasks.error()));
  if (auto packed = pack_weights(file, *tasks, pool, {}); !packed) return std::unexpected(std::move(packed.error()));
  return out;
}

}  // namespace quire
