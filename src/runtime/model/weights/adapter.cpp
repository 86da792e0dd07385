// Reads an adapter as PEFT writes it. Called on the thread that loads the adapter, while steps may run; the result is never changed. Every
// value is checked, because a broken adapter would otherwise fail later, in each request that uses it.
#include "runtime/model/weights/adapter.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <span>
#include <string_view>

#include "base/digest.h"
#include "format/dequant.h"
#include "format/mapped_file.h"
#include "format/quote.h"
#include "format/safetensors.h"
#include "runtime/model/weights/adapter_config.h"
#include "runtime/model/weights/tensor_names.h"

namespace quire {
namespace {

constexpr std::uint64_t kMaxConfigBytes = 1 << 20;

// The two low-rank matrices of one linear layer.
struct TensorPair {
  const SafetensorsTensor* a = nullptr;
  const SafetensorsTensor* b = nullptr;
};

// Outputs of a module of the adapter file that belong to one product of the model.
struct Outputs {
  LoraPair* out;
  std::uint32_t count;
  std::uint32_t head_dim = 0;  // if not 0, the model's rows of a head are in the order of rotary pairs
};

// A module of the adapter file: the number of its inputs, and the products to which its outputs belong.
struct LinearPart {
  std::uint32_t inputs;
  std::vector<Outputs> parts;
};

std::unexpected<Error> corrupt(const std::string& tensor, std::string message) {
  return fail(ErrorCode::corrupt, in_quotes(tensor), std::move(message), "train or download the adapter again");
}
std::unexpected<Error> unsupported(const std::string& tensor, std::string message) {
  return fail(ErrorCode::unsupported, in_quotes(tensor), std::move(message), "use an adapter for attention and feed-forward layers");
}

std::string shape_of(const SafetensorsTensor& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.shape, ", "));
}

bool has_shape(const SafetensorsTensor& tensor, std::uint64_t rows, std::uint64_t columns) {
  return tensor.shape.size() == 2 && tensor.shape[0] == rows && tensor.shape[1] == columns;
}

bool is_head(std::string_view module) {
  return module == "lm_head";
}

// Returns whether the tensor is a copy of the model's matrix, which PEFT writes for an adapted embedding or head (save_embedding_layers).
// These copies are ignored, as in vLLM.
bool is_copy_of_base(std::string_view tensor) {
  return tensor.ends_with(".embed_tokens.base_layer.weight") || tensor.ends_with(".lm_head.base_layer.weight");
}

// Returns the model's row for row `row` of the adapter. PEFT stores a head as two halves; the model's converter interleaves the rows of the
// halves.
std::uint32_t transposed(std::uint32_t row, std::uint32_t head_dim) {
  if (head_dim == 0) return row;
  const std::uint32_t in_head = row % head_dim, half = head_dim / 2;
  return row - in_head + (in_head < half ? 2 * in_head : 2 * (in_head - half) + 1);
}

class AdapterReader {
 public:
  AdapterReader(const ModelConfig& model, const AdapterConfig& config, const SafetensorsFile& file, Adapter& out)
      : model_(model), config_(config), file_(file), out_(out) {
    out_.layers.resize(model.num_layers);
  }

  Result<void> read() {
    if (Result<void> collected = collect(); !collected) return collected;
    for (const auto& [module, pair] : pairs_)
      if (Result<void> made = read_module(module, pair); !made) return made;
    return {};
  }

 private:
  // Collects the pairs of tensors by the names of their modules.
  Result<void> collect() {
    for (const SafetensorsTensor& tensor : file_.tensors()) {
      std::string_view name = tensor.name;
      if (is_copy_of_base(name)) continue;
      // Removes the prefixes of PEFT, of PEFT's model, of the decoder in a model with a head, and of the decoder (also with a head) in a
      // model with images.
      for (const std::string_view wrapper : {"base_model.", "model.", "model.", "text_model.", "language_model.", "model."})
        if (name.starts_with(wrapper)) name.remove_prefix(wrapper.size());
      bool is_half = false;
      for (const auto& [end, half] : {std::pair{".lora_A.weight", &TensorPair::a},
                                      {".lora_B.weight", &TensorPair::b},
                                      {".lora_embedding_A", &TensorPair::a},
                                      {".lora_embedding_B", &TensorPair::b}}) {
        if (!name.ends_with(end)) continue;
        name.remove_suffix(std::string_view(end).size());
        pairs_[is_head(name) ? std::string(name) : fmt::format("model.{}", name)].*half = &tensor;
        is_half = true;
        break;
      }
      if (!is_half) return unsupported(tensor.name, "is not lora_A or lora_B of a low-rank pair");
    }
    if (pairs_.empty())
      return fail(ErrorCode::corrupt, "adapter_model.safetensors", "contains no tensors", "train or download the adapter again");
    return {};
  }

  Result<void> read_module(const std::string& module, const TensorPair& pair) {
    if (pair.a == nullptr || pair.b == nullptr)
      return corrupt((pair.a == nullptr ? pair.b : pair.a)->name, "is present without the other half of its pair (lora_A, lora_B)");
    if (module == "model.embed_tokens") return read_embedding(module, pair);
    if (is_head(module)) return read_linear(module, pair, model_.hidden_size, std::array{Outputs{&out_.head, model_.vocab_size}});
    for (std::uint32_t layer = 0; layer < model_.num_layers; ++layer) {
      const std::string prefix = fmt::format("model.layers.{}.", layer);
      if (module.starts_with(prefix)) return read_layer(module, pair, layer);
    }
    return fail(ErrorCode::invalid_argument, in_quotes(pair.a->name),
                fmt::format("does not belong to a layer of a {} model with {} layers", model_.architecture, model_.num_layers),
                "use an adapter of this model");
  }

  Result<void> read_layer(const std::string& module, const TensorPair& pair, std::uint32_t layer) {
    const LayerConfig c = model_.layer(layer);
    LayerAdapter& out = out_.layers[layer];
    const auto is = [&](TensorRole role) { return module + ".weight" == hf_tensor_name(role, layer, 0, model_.tensor_names); };
    if (const auto expert = expert_of(module, layer)) {
      if (out.experts.empty()) out.experts.resize(c.num_experts + (c.shared_expert_size > 0 ? 1 : 0));
      LoraPair& changed = out.experts[expert->number].*expert->product;
      const std::uint32_t width = expert->number == c.num_experts ? c.shared_expert_size : c.expert_size;
      if (expert->product == &ExpertAdapter::down) return read_linear(module, pair, width, std::array{Outputs{&changed, c.hidden_size}});
      return read_linear(module, pair, c.hidden_size, std::array{Outputs{&changed, width}});
    }
    for (const std::optional<LinearPart>& part : {attention_part(c, out, is), state_part(c, out, is), feed_forward_part(c, out, is)})
      if (part) return read_linear(module, pair, part->inputs, part->parts);
    return unsupported(pair.a->name, fmt::format("belongs to a part of a {} model that does not support adapters", model_.architecture));
  }

  // The matrices of latent attention are stored in parts, so they cannot have adapters.
  template <class Is>
  static std::optional<LinearPart> attention_part(const LayerConfig& c, LayerAdapter& out, Is is) {
    using enum TensorRole;
    if (c.memory == LayerMemory::state) return std::nullopt;
    const std::uint32_t turning = c.rope_style == RopeStyle::interleaved ? c.head_dim : 0;
    const Outputs q_rows{&out.q, c.gated_attention ? 2 * c.q_size() : c.q_size(), turning};
    const Outputs k_rows{&out.k, c.kv_size(), turning}, v_rows{&out.v, c.kv_size()};
    const bool is_latent = c.latent.kv_rank > 0;
    if (!is_latent && is(q)) return LinearPart{c.hidden_size, {q_rows}};
    if (is(k)) return LinearPart{c.hidden_size, {k_rows}};
    if (is(v)) return LinearPart{c.hidden_size, {v_rows}};
    if (is(qkv)) return LinearPart{c.hidden_size, {q_rows, k_rows, v_rows}};
    if (!is_latent && is(attn_output)) return LinearPart{c.q_size(), {{&out.attn_output, c.hidden_size}}};
    return std::nullopt;
  }

  // Convolutions are not linear layers, so they cannot have adapters.
  template <class Is>
  static std::optional<LinearPart> state_part(const LayerConfig& c, LayerAdapter& out, Is is) {
    using enum TensorRole;
    if (c.memory == LayerMemory::attention) return std::nullopt;
    if (is(state_input)) return LinearPart{c.hidden_size, {{&out.state_input, c.state_input_size()}}};
    if (is(state_output)) return LinearPart{c.state_output_size(), {{&out.state_output, c.hidden_size}}};
    if (c.state.kind == StateKind::gated_delta && is(state_rates))
      return LinearPart{c.hidden_size, {{&out.state_rates, 2 * c.state.heads}}};
    return std::nullopt;
  }

  template <class Is>
  static std::optional<LinearPart> feed_forward_part(const LayerConfig& c, LayerAdapter& out, Is is) {
    using enum TensorRole;
    if (c.num_experts > 0) return std::nullopt;
    const Outputs gates{&out.gate, c.intermediate_size}, ups{&out.up, c.intermediate_size};
    if (is(gate)) return LinearPart{c.hidden_size, {gates}};
    if (is(up)) return LinearPart{c.hidden_size, {ups}};
    if (is(gate_up)) return LinearPart{c.hidden_size, {gates, ups}};
    if (is(down)) return LinearPart{c.intermediate_size, {{&out.down, c.hidden_size}}};
    return std::nullopt;
  }

  // Number of an expert, and one of its products.
  struct ExpertProduct {
    std::uint32_t number;
    LoraPair ExpertAdapter::* product;
  };

  // Returns the expert product that a module names. Compares with the names of separate experts, even if the model's file stacks experts,
  // because PEFT uses the names of the layers that it trained.
  [[nodiscard]] std::optional<ExpertProduct> expert_of(const std::string& module, std::uint32_t layer) const {
    const LayerConfig c = model_.layer(layer);
    if (c.num_experts == 0 || !has_gate(c.activation)) return std::nullopt;
    const std::string name = module + ".weight";
    const auto product_of = [&](const ExpertRoles& roles, std::uint32_t number) -> std::optional<ExpertProduct> {
      for (const auto& [role, product] :
           {std::pair{roles.gate, &ExpertAdapter::gate}, {roles.up, &ExpertAdapter::up}, {roles.down, &ExpertAdapter::down}})
        if (name == hf_tensor_name(role, layer, number, model_.tensor_names)) return ExpertProduct{number, product};
      return std::nullopt;
    };
    constexpr std::string_view kExperts = ".experts.";
    if (const std::size_t at = module.find(kExperts); at != std::string::npos) {
      std::uint32_t number = 0;
      const char* first = module.data() + at + kExperts.size();
      if (std::from_chars(first, module.data() + module.size(), number).ec != std::errc() || number >= c.num_experts) return std::nullopt;
      for (const ExpertTensors tensors : {ExpertTensors::separate, ExpertTensors::separate_in_block})
        if (const auto found = product_of(expert_roles(tensors), number)) return found;
    }
    if (c.shared_expert_size == 0 || c.fused_shared_gate_up) return std::nullopt;
    for (const ExpertTensors tensors : {ExpertTensors::separate, ExpertTensors::separate_shared})
      if (const auto found = product_of(shared_expert_roles(tensors), c.num_experts)) return found;
    return std::nullopt;
  }

  // Reads a linear layer: a [rank][inputs], b [outputs][rank].
  Result<void> read_linear(const std::string& module, const TensorPair& pair, std::uint32_t inputs, std::span<const Outputs> parts) {
    std::uint32_t outputs = 0;
    for (const Outputs& part : parts) outputs += part.count;
    const std::uint32_t rank = config_.rank_of(module);
    if (Result<void> checked = check(*pair.a, rank, inputs); !checked) return checked;
    if (Result<void> checked = check(*pair.b, outputs, rank); !checked) return checked;
    const auto scale = static_cast<float>(config_.scale_of(module));
    std::uint32_t first = 0;
    for (const Outputs& part : parts) {
      MatrixPacker a(WeightFormat::f32, rank, inputs), b(WeightFormat::f32, part.count, rank);
      for (std::uint32_t row = 0; row < rank; ++row) {
        if (Result<void> read = read_row(*pair.a, row, 1.0F); !read) return read;
        a.put_f32(row, row_);
      }
      for (std::uint32_t row = 0; row < part.count; ++row) {
        if (Result<void> read = read_row(*pair.b, first + row, scale); !read) return read;
        b.put_f32(transposed(row, part.head_dim), row_);
      }
      *part.out = {a.finish(), b.finish()};
      first += part.count;
    }
    out_.rank = std::max(out_.rank, rank);
    return {};
  }

  // Reads an embedding: a [rank][vocab_size], b [hidden_size][rank].
  Result<void> read_embedding(const std::string& module, const TensorPair& pair) {
    const std::uint32_t rank = config_.rank_of(module);
    if (Result<void> checked = check(*pair.a, rank, model_.vocab_size); !checked) return checked;
    if (Result<void> checked = check(*pair.b, model_.hidden_size, rank); !checked) return checked;
    out_.embedding_a.resize(std::size_t{model_.vocab_size} * rank);
    for (std::uint32_t row = 0; row < rank; ++row) {
      if (Result<void> read = read_row(*pair.a, row, 1.0F); !read) return read;
      for (std::size_t token = 0; token < row_.size(); ++token) out_.embedding_a[token * rank + row] = row_[token];
    }
    MatrixPacker b(WeightFormat::f32, model_.hidden_size, rank);
    for (std::uint32_t row = 0; row < model_.hidden_size; ++row) {
      if (Result<void> read = read_row(*pair.b, row, static_cast<float>(config_.scale_of(module))); !read) return read;
      b.put_f32(row, row_);
    }
    out_.embedding_b = b.finish();
    out_.rank = std::max(out_.rank, rank);
    return {};
  }

  [[nodiscard]] Result<void> check(const SafetensorsTensor& tensor, std::uint64_t rows, std::uint64_t columns) const {
    if (!has_shape(tensor, rows, columns)) {
      return fail(ErrorCode::invalid_argument, in_quotes(tensor.name),
                  fmt::format("has shape {}, but the model and the adapter's config require [{}, {}]", shape_of(tensor), rows, columns),
                  "use an adapter of this model, with the config that belongs to it");
    }
    if (const auto type = tensor.type(); !type) return std::unexpected(type.error());
    return {};
  }

  // Reads a row into row_, times `scale`.
  Result<void> read_row(const SafetensorsTensor& tensor, std::uint32_t row, float scale) {
    const std::size_t size = tensor.data.size() / tensor.rows();
    bytes_.resize(size);
    const std::span<const std::byte> from = tensor.data.subspan(row * size, size);
    if (file_.file() == nullptr)
      std::ranges::copy(from, bytes_.begin());
    else if (Result<void> read = file_.file()->read(from, bytes_); !read)
      return read;
    row_.resize(tensor.columns());
    dequantise_row(*tensor.type(), bytes_, row_);
    bool is_finite = true;
    for (float& value : row_) is_finite = std::isfinite(value *= scale) && is_finite;
    return is_finite ? Result<void>{} : corrupt(tensor.name, "contains NaN or Inf, or a value that is too large");
  }

  const ModelConfig& model_;
  const AdapterConfig& config_;
  const SafetensorsFile& file_;
  Adapter& out_;
  std::map<std::string, TensorPair> pairs_;
  std::vector<std::byte> bytes_;
  std::vector<float> row_;
};

Result<std::string> digest_of(std::string_view config, const MappedFile& weights) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(config)));
  std::vector<std::byte> piece(1 << 20);
  for (std::span<const std::byte> left = weights.bytes(); !left.empty();) {
    const std::span<const std::byte> next = left.first(std::min(left.size(), piece.size()));
    if (Result<void> read = weights.read(next, std::span(piece).first(next.size())); !read) return std::unexpected(std::move(read.error()));
    hash.update(std::span(piece).first(next.size()));
    left = left.subspan(next.size());
  }
  return to_hex(hash.finish());
}

Result<void> check_model(const ModelConfig& model) {
  if (model.adapter_problem.empty()) return {};
  return fail(ErrorCode::unsupported, "architecture", fmt::format("is {} from a GGUF file, {}", model.architecture, model.adapter_problem),
              "serve the Hugging Face folder of the model with adapters");
}

Result<void> check_rank(const AdapterConfig& config, std::uint32_t max_rank) {
  std::uint32_t largest = config.rank;
  for (const auto& [module, rank] : config.ranks) largest = std::max(largest, rank);
  if (largest <= max_rank) return {};
  return fail(ErrorCode::unsupported, "adapter_config.json: r", fmt::format("is {}, but max_lora_rank is {}", largest, max_rank),
              "increase max_lora_rank");
}

}  // namespace

std::uint64_t Adapter::bytes() const {
  std::uint64_t sum = embedding_a.size() * sizeof(float) + embedding_b.bytes() + head.bytes();
  for (const LayerAdapter& layer : layers)
    for (const LoraPair* pair : {&layer.q, &layer.k, &layer.v, &layer.attn_output, &layer.gate, &layer.up, &layer.down, &layer.state_input,
                                 &layer.state_rates, &layer.state_output})
      sum += pair->bytes();
  for (const LayerAdapter& layer : layers)
    for (const ExpertAdapter& expert : layer.experts) sum += expert.gate.bytes() + expert.up.bytes() + expert.down.bytes();
  return sum;
}

Result<Adapter> read_adapter(std::string_view config_text, const SafetensorsFile& weights, const ModelConfig& model,
                             std::uint32_t max_rank) {
  if (Result<void> checked = check_model(model); !checked) return std::unexpected(std::move(checked.error()));
  const auto json = parse_json(config_text, "adapter_config.json", kPythonJson);
  if (!json) return std::unexpected(json.error());
  const auto config = read_adapter_config(JsonRef(*json, "adapter_config.json"));
  if (!config) return std::unexpected(config.error());
  if (Result<void> checked = check_rank(*config, max_rank); !checked) return std::unexpected(std::move(checked.error()));
  Adapter adapter;
  if (Result<void> read = AdapterReader(model, *config, weights, adapter).read(); !read) return std::unexpected(std::move(read.error()));
  return adapter;
}

Result<std::shared_ptr<const Adapter>> load_adapter(const std::string& folder, const ModelConfig& model, std::uint32_t max_rank) {
  const auto config = read_text_file(folder + "/adapter_config.json", kMaxConfigBytes);
  if (!config) return std::unexpected(config.error());
  const auto file = SafetensorsFile::open(folder + "/adapter_model.safetensors");
  if (!file) return std::unexpected(file.error());
  auto read = read_adapter(*config, *file, model, max_rank);
  if (!read) return std::unexpected(std::move(read.error()));
  auto adapter = std::make_shared<Adapter>(*std::move(read));
  auto digest = digest_of(*config, *file->file());
  if (!digest) return std::unexpected(std::move(digest.error()));
  adapter->digest = *std::move(digest);
  // Ensures that the digest covers the same bytes that were packed.
  if (Result<void> same = file->file()->check_unchanged(); !same) return std::unexpected(std::move(same.error()));
  return adapter;
}

}  // namespace quire
