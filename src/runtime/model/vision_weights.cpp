// Names and shapes of the tensors that belong to the encoder. A tensor that nobody asks for is an error, as in the decoder.
#include "runtime/model/vision_weights.h"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "format/dequant.h"
#include "format/quote.h"
#include "runtime/model/weight_packing.h"

namespace quire {
namespace {

class VisionCollector {
 public:
  explicit VisionCollector(std::vector<TensorView> tensors) {
    for (TensorView& view : tensors) {
      std::string name = view.name;
      unused_.emplace(std::move(name), std::move(view));
    }
  }

  // Of any shape with so many values; a convolution's weights are a matrix of its outputs.
  void matrix(const std::string& name, std::uint32_t rows, std::uint32_t columns, PackedMatrix& out) {
    if (auto view = take(name, rows, columns)) tasks_.push_back({std::move(*view), &out, nullptr});
  }
  void vector(const std::string& name, std::uint64_t size, std::vector<float>& out) {
    if (auto view = take(name, 1, size)) tasks_.push_back({std::move(*view), nullptr, &out});
  }
  void linear(const std::string& name, std::uint32_t rows, std::uint32_t columns, Linear& out) {
    matrix(name + ".weight", rows, columns, out.matrix);
    vector(name + ".bias", rows, out.bias);
  }
  void norm(const std::string& name, std::uint32_t size, LayerNormWeights& out) {
    vector(name + ".weight", size, out.weight);
    vector(name + ".bias", size, out.bias);
  }

  Result<std::vector<PackTask>> finish() {
    if (!error_ && !unused_.empty())
      error_ = Error{ErrorCode::unsupported, in_quotes(unused_.begin()->first),
                     "the model's encoder of pictures has no use for this tensor", "use a model of a supported architecture"};
    if (error_) return std::unexpected(std::move(*error_));
    return std::move(tasks_);
  }

 private:
  std::optional<TensorView> take(const std::string& name, std::uint64_t rows, std::uint64_t columns) {
    if (error_) return std::nullopt;
    const auto found = unused_.find(name);
    if (found == unused_.end()) {
      error_ = Error{ErrorCode::corrupt, name, "the model has no such tensor", "download the model again"};
      return std::nullopt;
    }
    TensorView view = std::move(found->second);
    unused_.erase(found);
    if (view.rows * view.columns != rows * columns) {
      error_ =
          Error{ErrorCode::corrupt, name, fmt::format("has {} values, the config asks for {}", view.rows * view.columns, rows * columns),
                "use the config that belongs to the weights"};
    } else if (view.quantised != nullptr || !unpacked_format(view.type)) {
      error_ =
          Error{ErrorCode::unsupported, name, "is quantised, and encoders of pictures are not", "use the folder's F32, F16 or BF16 form"};
    }
    if (error_) return std::nullopt;
    view.rows = rows;
    view.columns = columns;
    return view;
  }

  std::map<std::string, TensorView> unused_;
  std::vector<PackTask> tasks_;
  std::optional<Error> error_;
};

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
  VisionCollector collector(std::move(*tensors));
  VisionWeights out;
  const std::string tower = "model.vision_model.";
  collector.linear(tower + "embeddings.patch_embedding", c.hidden_size, c.patch_values(), out.patches);
  collector.vector(tower + "embeddings.position_embedding.weight", std::uint64_t{c.num_patches()} * c.hidden_size, out.positions);
  out.layers.resize(c.num_layers);
  for (std::uint32_t i = 0; i < c.num_layers; ++i) {
    VisionLayerWeights& layer = out.layers[i];
    const std::string at = fmt::format("{}encoder.layers.{}.", tower, i);
    collector.norm(at + "layer_norm1", c.hidden_size, layer.attention_norm);
    collector.norm(at + "layer_norm2", c.hidden_size, layer.mlp_norm);
    collector.linear(at + "self_attn.q_proj", c.hidden_size, c.hidden_size, layer.q);
    collector.linear(at + "self_attn.k_proj", c.hidden_size, c.hidden_size, layer.k);
    collector.linear(at + "self_attn.v_proj", c.hidden_size, c.hidden_size, layer.v);
    collector.linear(at + "self_attn.out_proj", c.hidden_size, c.hidden_size, layer.output);
    collector.linear(at + "mlp.fc1", c.intermediate_size, c.hidden_size, layer.up);
    collector.linear(at + "mlp.fc2", c.hidden_size, c.intermediate_size, layer.down);
  }
  collector.norm(tower + "post_layernorm", c.hidden_size, out.norm);
  collector.matrix("model.connector.modality_projection.proj.weight", c.output_size, c.shuffled_size(), out.connector.matrix);
  auto tasks = collector.finish();
  if (!tasks) return std::unexpected(std::move(tasks.error()));
  if (auto packed = pack_weights(file, *tasks, pool, nullptr); !packed) return std::unexpected(std::move(packed.error()));
  return out;
}

}  // namespace quire
