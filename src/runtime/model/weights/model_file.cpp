// The files of a model in either format: config, tensors by role, tokenizer, pooling. Opened on one thread, when a model is loaded or
// inspected; immutable afterwards. Weights are copied by read() and never read through the map, because reading a truncated file through
// its map would end the program.
#include "runtime/model/weights/model_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/xxhash.h"
#include "format/json.h"
#include "format/quote.h"
#include "format/tokenizer_file.h"
#include "runtime/model/weights/image_info.h"
#include "runtime/model/weights/mmproj.h"
#include "runtime/model/weights/pooling_info.h"
#include "runtime/model/weights/quantised_tensors.h"
#include "runtime/model/weights/speech_info.h"
#include "runtime/model/weights/weight_formats.h"

namespace quire {
namespace {

constexpr std::uint64_t kMostConfigBytes = std::uint64_t{16} << 20U;
constexpr std::size_t kDigestPart = std::size_t{4} << 20U;

TensorView view_of(const GgufTensor& tensor) {
  return {.name = std::string(tensor.name),
          .type = tensor.type,
          .num_dims = tensor.num_dims,
          .rows = tensor.rows(),
          .columns = tensor.columns(),
          .data = tensor.data};
}

// Returns the number of parameters of experts that a token does not go through.
std::uint64_t num_unused_parameters(const ModelConfig& config) {
  std::uint64_t sum = 0;
  const std::uint64_t num_matrices = has_gate(config.activation) ? 3 : 2;
  for (std::uint32_t i = 0; i < config.num_layers; ++i)
    if (config.layer(i).num_experts > 0)
      sum += num_matrices * (config.num_experts - config.experts_per_token) * config.expert_size * config.hidden_size;
  return sum;
}

const char* state_name(StateKind kind) {
  switch (kind) {
    case StateKind::none:
      break;
    case StateKind::short_conv:
      return "short_conv";
    case StateKind::mamba2:
      return "mamba2";
    case StateKind::gated_delta:
      return "gdn_attention";  // vLLM's name
  }
  return "";
}

// Returns the prefix of the decoder's tensor names: "model.", or Nemotron-H's prefix.
std::string decoder_prefix(const ModelConfig& config) {
  const std::string name = hf_tensor_name(TensorRole::token_embedding, 0, 0, config.tensor_names);
  return name.substr(0, name.find('.') + 1);
}

// Returns whether the folder's tensor names have no decoder prefix, as AutoModel writes them for a model without a head.
bool is_headless(const SafetensorsFolder& folder, const ModelConfig& config) {
  const std::string embedding =
      hf_tensor_name(TensorRole::token_embedding, 0, 0, config.tensor_names).substr(decoder_prefix(config).size());
  return std::ranges::any_of(folder.tensors(), [&](const SafetensorsTensor* tensor) { return tensor->name == embedding; });
}

bool has_output(const SafetensorsFolder& folder) {
  return std::ranges::any_of(folder.tensors(), [](const SafetensorsTensor* tensor) {
    return tensor->name.starts_with("lm_head.") || tensor->name.find(".lm_head.") != tensor->name.npos;
  });
}

// Returns whether the tensor belongs to the vision encoder. Expects names as rename_parts() returns them.
bool is_vision_tensor(const TensorView& view) {
  for (const char* part : {"vision_model.", "connector.", "vision_tower.", "multi_modal_projector.", "visual."})
    if (view.name.starts_with(part)) return true;
  return false;
}

// Renames the tensors of a model that also supports images. The tensors of the decoder get the names of a text model, and the names of the
// vision encoder begin with the encoder's name. Folders have "model." at different positions, and transformers 5 omits "vision_model." from
// `tower`.
void rename_parts(std::vector<TensorView>& views, std::string_view tower) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kRenamed{
      {{"language_model.model.", "model."},
       {"language_model.lm_head.", "lm_head."},
       {"model.language_model.", "model."},
       {"model.text_model.", "model."},
       {"model.vision_model.", "vision_model."},
       {"model.connector.", "connector."},
       {"model.vision_tower.", "vision_tower."},
       {"model.multi_modal_projector.", "multi_modal_projector."},
       {"model.visual.", "visual."}}};
  for (TensorView& view : views)
    for (const auto& [from, to] : kRenamed)
      if (view.name.starts_with(from)) {
        view.name.replace(0, from.size(), to);
        break;
      }
  constexpr std::string_view kOuter = "vision_tower.";
  if (!tower.starts_with(kOuter)) return;
  for (TensorView& view : views)
    if (view.name.starts_with(kOuter) && !view.name.starts_with(tower)) view.name.replace(0, kOuter.size(), tower);
}

}  // namespace

Result<ModelFile> ModelFile::open(const std::string& path, const std::string& mmproj) {
  ModelFile file;
  file.path_ = path;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    if (!mmproj.empty())
      return fail(ErrorCode::invalid_argument, "mmproj", "is set, but the model is a folder, which contains its own encoder",
                  "leave it out");
    const auto json = read_json_file((std::filesystem::path(path) / "config.json").string(), kPythonJson);
    if (!json) return std::unexpected(json.error());
    auto config = config_from_hf(JsonRef(*json, "config.json"));
    if (!config) return std::unexpected(std::move(config.error()));
    auto scheme = checkpoint_scheme(JsonRef(*json, "config.json"));
    if (!scheme) return std::unexpected(std::move(scheme.error()));
    file.scheme_ = std::move(*scheme);
    auto folder = SafetensorsFolder::open(path);
    if (!folder) return std::unexpected(std::move(folder.error()));
    file.config_ = std::move(*config);
    if (file.config_.is_tied_if_no_output) file.config_.tied_embeddings = !has_output(*folder);
    file.has_no_lm_head_ = is_headless(*folder, file.config_);
    // The embedding is used in place of the missing output matrix, but no tokens are sampled with it.
    file.is_missing_output_ = file.has_no_lm_head_ && !file.config_.tied_embeddings && !has_output(*folder);
    file.config_.tied_embeddings |= file.is_missing_output_;
    file.weights_ = std::move(*folder);
    return file;
  }
  auto gguf = GgufFile::open(path);
  if (!gguf) return std::unexpected(std::move(gguf.error()));
  auto config = config_from_gguf(*gguf);
  if (!config) return std::unexpected(std::move(config.error()));
  file.config_ = std::move(*config);
  file.weights_ = std::move(*gguf);
  if (!mmproj.empty())
    if (Result<void> opened = file.open_mmproj(mmproj); !opened) return std::unexpected(std::move(opened.error()));
  return file;
}

Result<void> ModelFile::open_mmproj(const std::string& path) {
  auto gguf = GgufFile::open(path);
  if (!gguf) return std::unexpected(std::move(gguf.error()));
  auto read = read_mmproj(*gguf, std::get<GgufFile>(weights_), config_);
  if (!read) return std::unexpected(std::move(read.error()));
  config_.vision = std::move(read->vision);
  mmproj_images_ = std::move(read->pictures);
  mmproj_ = std::move(*gguf);
  return {};
}

Result<std::vector<TensorView>> ModelFile::tensors() const {
  auto views = all_tensors();
  if (views && config_.vision) std::erase_if(*views, is_vision_tensor);
  return views;
}

Result<std::vector<TensorView>> ModelFile::vision_tensors() const {
  auto views = all_tensors();
  if (views) std::erase_if(*views, [](const TensorView& view) { return !is_vision_tensor(view); });
  return views;
}

Result<std::vector<TensorView>> ModelFile::all_tensors() const {
  std::vector<TensorView> views;
  if (const auto* gguf = std::get_if<GgufFile>(&weights_)) {
    views.reserve(gguf->tensors().size());
    for (const GgufTensor& tensor : gguf->tensors()) views.push_back(view_of(tensor));
    if (!mmproj_ || !config_.vision) return views;
    for (const GgufTensor& tensor : mmproj_->tensors()) {
      views.push_back(view_of(tensor));
      views.back().name = folder_name_of(tensor, *config_.vision);
    }
  } else if (const auto* folder = std::get_if<SafetensorsFolder>(&weights_)) {
    auto assembled = assemble_tensors(scheme_, folder->tensors(), [this](auto part, auto out) { return read(part, out); });
    if (assembled && (config_.has_unread_vision || config_.vision))
      rename_parts(*assembled, config_.vision ? config_.vision->tower : std::string_view{});
    if (assembled && config_.has_unread_vision) std::erase_if(*assembled, is_vision_tensor);
    return assembled;
  }
  return views;
}

std::string ModelFile::name_of(TensorRole role, std::uint32_t layer, std::uint32_t expert) const {
  const std::uint32_t block = block_of(role, layer, config_);
  if (std::holds_alternative<GgufFile>(weights_)) return gguf_tensor_name(role, block, config_.tensor_names);
  std::string name = hf_tensor_name(role, block, expert, config_.tensor_names);
  if (const std::string prefix = decoder_prefix(config_); has_no_lm_head_ && name.starts_with(prefix)) name.erase(0, prefix.size());
  return name;
}

std::string ModelFile::model_name() const {
  if (const auto* gguf = std::get_if<GgufFile>(&weights_)) {
    const auto name = gguf->get_optional<std::string>("general.name").value_or(std::nullopt);
    if (name && !name->empty()) return *name;
    return gguf_stem(path_);
  }
  const std::filesystem::path folder(path_);
  return folder.has_filename() ? folder.filename().string() : folder.parent_path().filename().string();
}

// Returns the tokenizer. A model without a tokenizer can still run on token ids.
Result<TokenizerSpec> ModelFile::tokenizer() const {
  if (const auto* gguf = std::get_if<GgufFile>(&weights_)) return tokenizer_from_gguf(*gguf);
  auto spec = tokenizer_from_hf(path_);
  if (spec || (spec.error().code != ErrorCode::not_found && spec.error().code != ErrorCode::unsupported)) return spec;
  TokenizerSpec none;
  none.unsupported = spec.error().to_string();
  return none;
}

// Reads how images are prepared. If this fails, the model is served for text only.
void ModelFile::describe_images(ModelInfo& info) const {
  if (!config_.vision) return;
  auto pictures = mmproj_ ? Result<ImageInfo>(mmproj_images_) : read_image_info(path_, *config_.vision);
  if (pictures) {
    info.pictures = *std::move(pictures);
    info.pictures.embed_size = config_.vision->output_size;
  } else {
    info.notes.push_back("images are not supported: " + pictures.error().to_string());
  }
}

Result<ModelInfo> ModelFile::info(WeightQuantisation quantise) const {
  auto views = all_tensors();
  if (!views) return std::unexpected(std::move(views.error()));
  auto spec = tokenizer();
  if (!spec) return std::unexpected(std::move(spec.error()));
  if (spec->tokens.size() > config_.vocab_size) {
    return fail(ErrorCode::corrupt, "tokenizer",
                fmt::format("has {} tokens, but the vocabulary of the model has {}", spec->tokens.size(), config_.vocab_size),
                "use the tokenizer that belongs to the model");
  }
  ModelInfo info{.name = model_name(),
                 .architecture = config_.architecture,
                 .weight_types = describe_types(*views),
                 .num_layers = config_.num_layers,
                 .hidden_size = config_.hidden_size,
                 .num_heads = config_.num_heads,
                 .num_kv_heads = config_.num_kv_heads,
                 .head_dim = config_.head_dim,
                 .vocab_size = config_.vocab_size,
                 .context_length = config_.context_length,
                 .sliding_windows = config_.sliding_windows,
                 .latent_attention = config_.latent.kv_rank > 0,
                 .layer_memories = config_.layer_memories,
                 .state_kind = state_name(config_.state.kind),
                 .state_shapes = config_.state_shapes(),
                 .num_experts = config_.num_experts,
                 .experts_per_token = config_.experts_per_token,
                 .tokenizer = std::make_shared<const TokenizerSpec>(std::move(*spec)),
                 .pooling = {},
                 .pictures = {},
                 .encoder = {config_.encoder.num_positions, config_.encoder.num_features}};
  info.notes = info.tokenizer->notes;
  info.has_output = !is_missing_output_;
  if (is_missing_output_)
    info.notes.emplace_back("the folder has no lm_head.weight, so the model supports embeddings but not text generation");
  if (config_.has_unread_vision) info.notes.emplace_back("images are not supported: only the text part of the model is served");
  const auto* gguf = std::get_if<GgufFile>(&weights_);
  if (info.has_encoder()) info.speech = speech_info(path_, config_.vocab_size);
  info.pooling = gguf != nullptr ? pooling_info(*gguf, path_) : pooling_info(path_);
  for (const TensorView& view : *views) info.num_parameters += view.rows * view.columns;
  describe_weights(with_quantisation(std::move(*views), quantise), scheme_, info);
  describe_images(info);
  info.num_active_parameters = info.num_parameters - std::min(info.num_parameters, num_unused_parameters(config_));
  return info;
}

std::vector<const MappedFile*> ModelFile::files() const {
  if (const auto* gguf = std::get_if<GgufFile>(&weights_)) {
    std::vector<const MappedFile*> files;
    for (const MappedFile& part : gguf->files()) files.push_back(&part);
    if (mmproj_)
      for (const MappedFile& part : mmproj_->files()) files.push_back(&part);
    return files;
  }
  return std::get<SafetensorsFolder>(weights_).files();
}

Result<void> ModelFile::read(std::span<const std::byte> part, std::span<std::byte> out) const {
  for (const MappedFile* file : files())
    if (file->contains(part)) return file->read(part, out);
  QUIRE_CHECK(false, "the data belongs to a file of this model");
  return {};
}

Result<Sha256Digest> ModelFile::digest() const {
  Sha256 all;
  const auto add = [&all](const auto& values) { all.update(std::as_bytes(std::span(values))); };
  std::vector<std::string_view> configs;
  if (std::holds_alternative<SafetensorsFolder>(weights_)) configs = {"config.json"};
  // The encoder's output for an image also depends on these files. A GGUF file of an encoder contains their values.
  if (config_.vision && !mmproj_) configs.insert(configs.end(), {"preprocessor_config.json", "processor_config.json"});
  for (const std::string_view name : configs) {
    const auto config = read_text_file((std::filesystem::path(path_) / name).string(), kMostConfigBytes);
    if (!config && (name == configs.front() || config.error().code != ErrorCode::not_found)) return std::unexpected(config.error());
    const std::string text = config.value_or("");
    add(Sha256::of(std::as_bytes(std::span(text))));
  }
  std::vector<std::byte> part(kDigestPart);
  for (const MappedFile* file : files()) {
    const std::span<const std::byte> bytes = file->bytes();
    for (std::size_t begin = 0; begin < bytes.size(); begin += kDigestPart) {
      const std::span<std::byte> read = std::span(part).first(std::min(kDigestPart, bytes.size() - begin));
      if (Result<void> done = file->read(bytes.subspan(begin, read.size()), read); !done) return std::unexpected(done.error());
      xxhash_available() ? add(xxh3_128(read)) : add(read);
    }
    add(std::array{std::uint64_t{bytes.size()}});
  }
  return all.finish();
}

std::string ModelFile::identity() const {
  std::string text;
  for (const MappedFile* file : files()) text += file->identity() + "\n";
  if (!std::holds_alternative<SafetensorsFolder>(weights_)) return text;
  const auto config = read_text_file((std::filesystem::path(path_) / "config.json").string(), kMostConfigBytes);
  return text + (config ? to_hex(Sha256::of(std::as_bytes(std::span(*config)))) : "none");
}

Result<void> ModelFile::check_unchanged() const {
  for (const MappedFile* file : files())
    if (auto same = file->check_unchanged(); !same) return same;
  return {};
}

}  // namespace quire
