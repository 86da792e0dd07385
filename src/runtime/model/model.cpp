// A loaded model: the decoder and, if present, the encoders of images and of audio. The thread that creates the engine creates the model.
// Then called by the worker, one pass at a time, on the thread that leads the step. Model only forwards calls to the decoder and the
// encoders.
#include "runtime/model/model.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "runtime/kernel/kernel.h"
#include "runtime/model/decoder.h"
#include "runtime/model/encoder.h"
#include "runtime/model/vision_encoder.h"
#include "runtime/model/weights/model_file.h"
#include "runtime/model/weights/weights.h"

namespace quire {

struct Model::State {
  ModelInfo info;
  Decoder decoder;
  std::unique_ptr<VisionEncoder> vision = {};
  std::unique_ptr<Encoder> encoder = {};  // null: the model has no encoder; reads the decoder's weights
};

Model::Model(std::unique_ptr<State> state) : state_(std::move(state)) {}
Model::~Model() = default;

const ModelInfo& Model::info() const {
  return state_->info;
}

std::uint64_t Model::weight_bytes() const {
  return state_->info.weight_bytes;
}

std::uint64_t Model::workspace_bytes() const {
  return state_->decoder.workspace().bytes() + (state_->vision == nullptr ? 0 : state_->vision->workspace_bytes()) +
         (state_->encoder == nullptr ? 0 : state_->encoder->workspace_bytes());
}

const char* Model::kernel_name() const {
  return state_->decoder.kernels().name;
}

VisionEncoder* Model::vision() {
  return state_->vision.get();
}

ExpertReads Model::expert_reads() const {
  return state_->decoder.expert_reads();
}

void Model::forward(const BatchInput& input, KvCache& cache, const BlockTables& tables, const PassOutput& output, PassHooks* hooks) {
  state_->decoder.forward(input, cache, tables, output, hooks);
}

void Model::encode(std::span<const float> features, Slot slot, KvCache& cache, const BlockTables& tables) {
  QUIRE_CHECK(state_->encoder != nullptr, "the model has an encoder");
  state_->encoder->encode(features, slot, cache, tables);
}

void Model::read_logits(std::span<const std::uint32_t> rows, std::span<float> logits) {
  state_->decoder.read_logits(rows, logits);
}

void Model::read_hidden(std::span<const std::uint32_t> rows, std::span<float> hidden) {
  state_->decoder.read_hidden(rows, hidden);
}

class ModelLoader {
 public:
  static Result<std::unique_ptr<Model>> load(const ModelFile& file, ModelInfo info, const LoadOptions& options) {
    QUIRE_CHECK(options.pool != nullptr && options.max_num_batched_tokens > 0 && options.max_num_seqs > 0);
    const auto kernels = options.kernels != nullptr ? Result<const Kernels*>(options.kernels) : find_kernels(options.isa);
    if (!kernels) return std::unexpected(kernels.error());
    auto weights = load_weights(file, *options.pool, {.kept = &options.weights, .progress = options.progress});
    if (!weights) return std::unexpected(std::move(weights.error()));
    info.weight_bytes = weights->bytes() + weights->streamed_bytes();
    info.packing_notes = weights->notes;
    const auto activations = activations_of(info, options.activations);
    if (!activations) return std::unexpected(activations.error());
    const std::uint32_t context = file.config().context_length;
    const std::uint32_t positions = options.max_model_len == 0 ? context : std::min(options.max_model_len, context);
    const WorkspaceLimits limits{options.max_num_batched_tokens, options.max_num_seqs,  options.pool->num_threads(), positions,
                                 options.num_cache_groups,       options.max_lora_rank, weights->are_reordered()};
    Decoder decoder(file.config(), std::move(*weights), **kernels, *activations, limits, *options.pool);
    // An image has at most as many tokens as the served context.
    if (info.pictures.tile_side == 0) info.pictures.tile_tokens = std::min(info.pictures.tile_tokens, positions);
    auto vision = load_vision_of(file, info, **kernels, options);
    if (!vision) return std::unexpected(std::move(vision.error()));
    if (vision->encoder != nullptr) info.weight_bytes += vision->encoder->weight_bytes();
    info.packing_notes.insert(info.packing_notes.end(), vision->notes.begin(), vision->notes.end());
    std::unique_ptr<Model::State> state(new Model::State{std::move(info), std::move(decoder), std::move(vision->encoder)});
    if (file.config().encoder.num_layers > 0)
      state->encoder = std::make_unique<Encoder>(file.config(), state->decoder.weights(), **kernels, *activations, *options.pool);
    return std::unique_ptr<Model>(new Model(std::move(state)));
  }

 private:
  // Returns the activation mode to use: f32 if the model has no integer weights, because only products with integer weights use codes.
  static Result<ActivationMode> activations_of(const ModelInfo& info, ActivationMode asked) {
    const auto any = [&](auto is_one) { return std::ranges::any_of(info.held, is_one); };
    if (asked == ActivationMode::bf16)
      return any([](const WeightFormatSummary& held) { return held.form == "bf16"; })
                 ? Result<ActivationMode>(asked)
                 : fail(ErrorCode::unsupported, "activations", "is bf16, but the model has no bf16 weights", "use \"int16\"");
    return any([](const WeightFormatSummary& held) { return held.multiplies_integers; }) ? asked : ActivationMode::f32;
  }

  // Loads the vision encoder. The encoder is null if the model has none, or if images are not supported.
  static Result<LoadedVision> load_vision_of(const ModelFile& file, const ModelInfo& info, const Kernels& kernels,
                                             const LoadOptions& options) {
    const std::optional<VisionConfig>& vision = file.config().vision;
    if (!vision || !info.pictures.any()) return LoadedVision{};
    return load_vision_encoder(file, *vision, info.pictures, kernels, *options.pool, {.kept = &options.weights});
  }
};

Result<std::unique_ptr<Model>> load_model(const ModelFile& file, ModelInfo info, const LoadOptions& options) {
  return ModelLoader::load(file, std::move(info), options);
}

Result<std::unique_ptr<Model>> load_model(const std::string& path, const LoadOptions& options) {
  const auto file = ModelFile::open(path);
  if (!file) return std::unexpected(file.error());
  auto info = file->info();
  if (!info) return std::unexpected(std::move(info.error()));
  return load_model(*file, std::move(*info), options);
}

Result<ModelInfo> inspect(const std::string& path, const std::string& mmproj) {
  const auto file = ModelFile::open(path, mmproj);
  if (!file) return std::unexpected(file.error());
  return file->info();
}

}  // namespace quire
