// Opens, checks and loads the draft model. Called once, by the thread that builds the engine. Draft tokens never change an answer. A model
// is rejected if it would be useless, or if its rejected draft tokens could not be rolled back.
#include "engine/draft.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/kv_plan.h"
#include "runtime/memory/kv_cache.h"

namespace quire {
namespace {

constexpr const char* kOption = "speculative_model";
constexpr std::uint32_t kMostPadding = 128;  // models of one family may pad their vocabularies differently

// Returns the error with `path` in its message and with the name of the option.
Error named(Error error, const std::string& path) {
  if (!error.field.empty()) error.message = fmt::format("{}: {}", error.field, error.message);
  if (!error.message.contains(path)) error.message = fmt::format("{}: {}", path, error.message);
  error.field = kOption;
  return error;
}

Result<void> check_kind(const ModelInfo& draft, const std::string& path) {
  const auto refuse = [&](const char* problem, const char* remedy) {
    return fail(ErrorCode::unsupported, kOption, fmt::format("{} {}", path, problem), remedy);
  };
  if (!draft.has_output) return refuse("has no output matrix (lm_head.weight)", "use a draft model that generates text");
  if (draft.has_encoder()) return refuse("has an encoder", "use a draft model that takes text input only");
  if (draft.pictures.any()) return refuse("takes images as input", "use a draft model that takes text input only, such as its GGUF file");
  if (draft.has_states())
    return refuse("has layers with states, which cannot be rolled back after a rejected draft token",
                  "use a draft model with attention in all layers");
  return {};
}

// Returns the activation mode for the draft model. If bf16 is requested for the target but the draft model has no bf16 weights, int16 is
// used, with which the draft model predicts equally well.
ActivationMode activations_for(const ModelInfo& draft, ActivationMode asked) {
  const bool has_bf16 = std::ranges::find(draft.held, "bf16", &WeightFormatSummary::form) != draft.held.end();
  return asked == ActivationMode::bf16 && !has_bf16 ? ActivationMode::int16 : asked;
}

}  // namespace

Result<void> check_draft(const ModelInfo& draft, const std::string& draft_path, const ModelInfo& target, const std::string& target_path) {
  if (auto valid = check_kind(draft, draft_path); !valid) return valid;
  constexpr const char* kRemedy = "use a smaller model of the same family";
  const std::vector<std::string>&tokens = draft.tokenizer->tokens, &others = target.tokenizer->tokens;
  const auto [fewer, more] = std::minmax(draft.vocab_size, target.vocab_size);
  // Without token texts, only the vocabulary sizes can be compared.
  const std::uint32_t padding = tokens.empty() || others.empty() ? 0 : kMostPadding;
  if (more - fewer > padding) {
    return fail(
        ErrorCode::invalid_argument, kOption,
        fmt::format("the vocabularies differ: {} has {} tokens, {} has {}", draft_path, draft.vocab_size, target_path, target.vocab_size),
        kRemedy);
  }
  const std::size_t common = std::min({tokens.size(), others.size(), std::size_t{fewer}});
  for (std::size_t id = 0; id < common; ++id) {
    if (tokens[id] == others[id]) continue;
    return fail(
        ErrorCode::invalid_argument, kOption,
        fmt::format("the vocabularies differ: token {} is '{}' in {}, but '{}' in {}", id, tokens[id], draft_path, others[id], target_path),
        kRemedy);
  }
  return {};
}

Result<std::optional<DraftFile>> open_draft(const EngineOptions& options, const ModelInfo& target) {
  if (options.draft_model.empty()) return std::nullopt;
  auto file = ModelFile::open(options.draft_model);
  if (!file) return std::unexpected(named(std::move(file.error()), options.draft_model));
  auto info = file->info(options.weights.quantise);
  if (!info) return std::unexpected(named(std::move(info.error()), options.draft_model));
  if (auto valid = check_draft(*info, options.draft_model, target, options.model); !valid) return std::unexpected(valid.error());
  return DraftFile{.file = *std::move(file), .info = *std::move(info)};
}

Result<std::unique_ptr<DraftModel>> load_draft(const DraftFile& draft, const EngineOptions& options, const ModelInfo& target,
                                               const KvLayout& layout, ThreadPool& pool) {
  const SchedulerOptions& scheduler = options.scheduler;
  const DraftLimits limits{.max_num_seqs = scheduler.max_num_seqs,
                           .max_model_len = std::min(scheduler.max_model_len, draft.info.context_length),
                           .max_drafts = options.speculation.num_speculative_tokens,
                           .max_rows = std::max(scheduler.max_num_batched_tokens, 2 * scheduler.max_num_seqs),
                           .vocab_size = target.vocab_size};
  auto own_layout = plan_draft_kv(draft.info, options, layout);
  if (!own_layout) return std::unexpected(named(std::move(own_layout.error()), options.draft_model));
  const auto num_groups = static_cast<std::uint32_t>(own_layout->groups.size());
  auto cache = KvCache::create(*std::move(own_layout));
  if (!cache) return std::unexpected(named(std::move(cache.error()), options.draft_model));
  WeightsOptions weights = options.weights;
  weights.expert_bytes = 0;
  auto model = load_model(draft.file, draft.info,
                          {.activations = activations_for(draft.info, options.activations),
                           .isa = options.isa,
                           .max_num_batched_tokens = limits.max_rows,
                           .max_num_seqs = limits.max_num_seqs,
                           .max_model_len = limits.max_model_len,
                           .num_cache_groups = num_groups,
                           .pool = &pool,
                           .weights = std::move(weights)});
  if (!model) return std::unexpected(named(std::move(model.error()), options.draft_model));
  return std::make_unique<DraftModel>(limits, *std::move(model), *std::move(cache), pool);
}

}  // namespace quire
