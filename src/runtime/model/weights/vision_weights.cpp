// Collects the tensors of the image encoder by name and shape. Called while a model is loaded, on one thread. A tensor of the encoder that
// is not taken is an error, unless is_unused() returns true for the tensor.
#include "runtime/model/weights/vision_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "runtime/model/weights/task_collector.h"

namespace quire {
namespace {

void collect_norm(TaskCollector& collector, const std::string& name, std::uint32_t size, LayerNormWeights& out) {
  collector.vector(name + ".weight", size, out.weight);
  collector.vector(name + ".bias", size, out.bias);
}

// Returns whether the tensor is not needed: it belongs to an unused layer, or to the head that computes one vector per image.
bool is_unused(std::string_view name, const VisionConfig& c) {
  if (!name.starts_with(c.tower)) return false;
  name.remove_prefix(c.tower.size());
  if (name.starts_with("head.") || name == "embeddings.position_ids") return true;
  if (!c.post_norm && name.starts_with("post_layernorm.")) return true;
  constexpr std::string_view kLayers = "encoder.layers.";
  if (!name.starts_with(kLayers)) return false;
  name.remove_prefix(kLayers.size());
  std::uint32_t layer = 0;
  const auto read = std::from_chars(name.data(), name.data() + name.size(), layer);
  return read.ec == std::errc() && layer >= c.num_layers && layer - c.num_layers < c.num_unused_layers;
}

void collect_connector(TaskCollector& collector, const VisionConfig& c, VisionWeights& out) {
  if (c.averages_patches) {
    collector.vector("multi_modal_projector.mm_soft_emb_norm.weight", c.hidden_size, out.mean_norm);
    collector.transposed("multi_modal_projector.mm_input_projection_weight", c.output_size, c.hidden_size, out.connector.matrix);
    return;
  }
  if (!c.projector) {
    collector.matrix("connector.modality_projection.proj.weight", c.output_size, c.shuffled_size(), out.connector.matrix);
    return;
  }
  collector.linear("multi_modal_projector.linear_1", c.output_size, c.shuffled_size(), out.connector, c.projector_bias);
  collector.linear("multi_modal_projector.linear_2", c.output_size, c.output_size, out.second, c.projector_bias);
}

}  // namespace

std::uint64_t VisionWeights::bytes() const {
  std::uint64_t sum = patches.bytes() + connector.bytes() + second.bytes() + positions.size() * sizeof(float);
  for (const VisionLayerWeights& layer : layers)
    for (const Linear* linear : {&layer.q, &layer.k, &layer.v, &layer.output, &layer.up, &layer.down}) sum += linear->bytes();
  return sum;
}

Result<void> check_plain(const std::vector<TensorView>& tensors) {
  const auto quantised = std::ranges::find_if(tensors, [](const TensorView& view) { return view.quantised != nullptr; });
  if (quantised == tensors.end()) return {};
  return fail(ErrorCode::unsupported, quantised->name, "is quantised, but quantised image encoders are not supported",
              "use a model folder with F32, F16 or BF16 weights");
}

Result<VisionWeights> load_vision(const ModelFile& file, const VisionConfig& c, ThreadPool& pool, const PackingOptions& options) {
  auto tensors = file.vision_tensors();
  if (!tensors) return std::unexpected(std::move(tensors.error()));
  std::erase_if(*tensors, [&c](const TensorView& view) { return is_unused(view.name, c); });
  if (Result<void> plain = check_plain(*tensors); !plain) return std::unexpected(std::move(plain.error()));
  TaskCollector collector(file, std::move(*tensors), "the image encoder of the model");
  VisionWeights out;
  const std::string tower(c.tower);
  collector.convolution(tower + "embeddings.patch_embedding", c.hidden_size, c.patch_values(), out.patches, c.patch_bias);
  if (c.class_token) collector.vector(tower + "embeddings.class_embedding", c.hidden_size, out.class_token);
  collector.floats(tower + "embeddings.position_embedding.weight", c.num_rows() * c.hidden_size, out.positions);
  // The name is misspelt in the files, too.
  if (c.pre_norm) collect_norm(collector, tower + "pre_layrnorm", c.hidden_size, out.pre_norm);
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
  if (c.post_norm) collect_norm(collector, tower + "post_layernorm", c.hidden_size, out.norm);
  collect_connector(collector, c, out);
  auto tasks = collector.finish();
  if (!tasks) return std::unexpected(std::move(tasks.error()));
  auto packed = pack_weights(file, *tasks, pool, options);
  if (!packed) return std::unexpected(std::move(packed.error()));
  out.notes = std::move(packed->notes);
  for (float& weight : out.mean_norm) weight += c.norm_offset;
  return out;
}

}  // namespace quire
