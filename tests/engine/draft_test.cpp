// A draft model changes the speed of answers, but not a bit of them.
#include "engine/draft.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>

#include "base/random.h"
#include "engine/collector.h"
#include "engine/create.h"
#include "engine/engine_parts.h"
#include "engine/kv_plan.h"
#include "engine/paused_engine.h"
#include "engine/resolve_options.h"
#include "engine/windowed_model.h"
#include "quire/engine.h"
#include "runtime/model/rig.h"
#include "runtime/model/tiny_model.h"
#include "runtime/model/weights/model_file.h"
#include "support/sanitized.h"

namespace quire {
namespace {

constexpr std::uint32_t kDraftRequests = 24, kDraftOutputs = kSanitized ? 12 : 40;

// Half of the requests sample greedily, the other half at random.
std::vector<EngineRequest> drafted_requests() {
  Random random(5);
  std::vector<EngineRequest> requests(kDraftRequests);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].prompt.resize(random.between(2, 90));
    std::ranges::generate(requests[i].prompt, [&] { return static_cast<TokenId>(random.below(300)); });
    requests[i].sampling.temperature = i % 2 == 0 ? 0.0F : 0.8F;
    requests[i].sampling.seed = i;
    requests[i].sampling.repetition_penalty = i % 3 == 0 ? 1.1F : 1.0F;
    requests[i].sampling.max_tokens = kDraftOutputs;
    requests[i].sampling.ignore_eos = true;
    requests[i].sampling.logprobs = 3;
  }
  return requests;
}

struct DraftedAnswers {
  std::vector<std::vector<TokenId>> tokens;
  std::vector<std::vector<float>> logprobs;
  EngineStats stats;
};

// Makes an engine like create_engine(), but always runs the draft model whatever it costs: tiny draft models seldom pay.
std::unique_ptr<Engine> drafting_engine(const EngineOptions& options) {
  const ModelFile file = ModelFile::open(options.model).value();
  const ModelInfo info = file.info().value();
  const ResolvedEngine resolved = resolve_options(options, info, {1, 0}).value();
  const DraftFile draft = *open_draft(resolved.options, info).value();
  const SchedulerOptions& scheduler = resolved.options.scheduler;
  auto pool = std::make_unique<ThreadPool>(resolved.options.num_threads);
  const auto load = [&](const ModelFile& from, const ModelInfo& header) {
    return load_model(from, header,
                      {.max_num_batched_tokens = scheduler.max_num_batched_tokens,
                       .max_num_seqs = scheduler.max_num_seqs,
                       .max_model_len = scheduler.max_model_len,
                       .num_cache_groups = 3,
                       .pool = pool.get()})
        .value();
  };
  auto cache = KvCache::create(resolved.layout).value();
  auto draft_cache = KvCache::create(plan_draft_kv(draft.info, resolved.options, cache.layout()).value()).value();
  const DraftLimits limits{.max_num_seqs = scheduler.max_num_seqs,
                           .max_model_len = scheduler.max_model_len,
                           .max_drafts = resolved.options.speculation.num_speculative_tokens,
                           .max_rows = scheduler.max_num_batched_tokens,
                           .vocab_size = info.vocab_size,
                           .always_draft = true};
  auto draft_model = std::make_unique<DraftModel>(limits, load(draft.file, draft.info), std::move(draft_cache), *pool);
  auto model = load(file, info);
  auto worker = std::make_unique<Worker>(resolved.limits, std::move(pool), std::move(model), std::move(cache), WorkerSources{},
                                         std::move(draft_model));
  EngineParts parts;
  parts.worker = std::move(worker);
  return make_engine(resolved, std::move(parts)).value();
}

DraftedAnswers answers_of(const EngineOptions& options, const std::vector<EngineRequest>& requests, bool always_draft = true) {
  const std::unique_ptr<Engine> engine =
      always_draft && !options.draft_model.empty() ? drafting_engine(options) : create_engine(options, nullptr, nullptr).value();
  Collector sink;
  std::vector<RequestId> ids;
  {
    const PausedEngine paused(*engine);
    for (const EngineRequest& request : requests) ids.push_back(engine->submit(request, sink).value());
  }
  DraftedAnswers answers;
  for (const RequestId id : ids) {
    const Collector::Answer answer = sink.wait(id);
    EXPECT_EQ(answer.tokens.size(), kDraftOutputs) << answer.error;
    answers.tokens.push_back(answer.tokens);
    std::vector<float>& logprobs = answers.logprobs.emplace_back();
    for (const PositionLogprobs& position : answer.logprobs)
      for (const TokenLogprob& entry : position.entries) logprobs.push_back(entry.logprob);
  }
  EXPECT_EQ(engine->stop(60.0), 0U);
  answers.stats = engine->stats();
  EXPECT_EQ(answers.stats.num_free_blocks, answers.stats.num_blocks);
  return answers;
}

class DraftedEngine : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    ModelConfig config = tiny::small_llama();
    config.context_length = 512;
    tiny::write_gguf(llama_, config, "Q4_1");
    tiny::write_windowed_weights(windowed_);
    options_.scheduler.max_model_len = 140;
    options_.scheduler.async_scheduling = GetParam();
    options_.cache.num_blocks = 800;
    options_.cache.block_size = 4;
    options_.num_threads = 2;
  }
  tiny::TempFolder folder_;
  std::string llama_ = folder_.file("llama.gguf"), windowed_ = folder_.file("windowed");
  EngineOptions options_;
};
INSTANTIATE_TEST_SUITE_P(Scheduling, DraftedEngine, testing::Bool(),
                         [](const auto& param) { return std::string(param.param ? "async" : "sync"); });

TEST_P(DraftedEngine, AnswersEqualAnswersWithoutDraftsBitForBit) {
  const std::vector<EngineRequest> requests = drafted_requests();
  for (const std::string& target : {llama_, windowed_}) {
    options_.model = target;
    options_.draft_model.clear();
    const DraftedAnswers plain = answers_of(options_, requests);
    EXPECT_FALSE(plain.stats.speculation.has_value());
    for (const std::string& draft : {llama_, windowed_}) {
      SCOPED_TRACE(target + " with drafts of " + draft);
      EngineOptions drafting = options_;
      drafting.draft_model = draft;
      const DraftedAnswers chosen = answers_of(drafting, requests, false);
      EXPECT_EQ(chosen.tokens, plain.tokens);
      EXPECT_EQ(chosen.logprobs, plain.logprobs);
      // Sanitizers slow both models down so much that the engine drops the draft model.
      if (!kSanitized) EXPECT_GT(chosen.stats.speculation.value().num_draft_tokens, 0U);
      for (const bool squeezed : {false, true}) {
        // There are so few blocks that requests are preempted. The draft model gets a quarter of the memory, which is also not enough for
        // all.
        if (squeezed) drafting.cache.num_blocks = target == llama_ ? 100 : kSanitized ? 130 : 180;
        const DraftedAnswers drafted = answers_of(drafting, requests);
        EXPECT_EQ(drafted.tokens, plain.tokens);
        EXPECT_EQ(drafted.logprobs, plain.logprobs);
        ASSERT_TRUE(drafted.stats.speculation.has_value()) << "no draft was verified" << (squeezed ? " with few blocks" : "");
        const SpeculationStats drafts = *drafted.stats.speculation;
        const std::uint32_t least = kSanitized ? 0 : squeezed ? kDraftRequests : 3 * kDraftRequests;
        EXPECT_GT(drafts.num_draft_tokens, 3 * least);
        if (draft == target) EXPECT_GT(drafts.num_accepted_tokens, least);
        if (draft == target)
          EXPECT_LT(drafts.num_accepted_tokens, drafts.num_draft_tokens) << "drafts of randomly sampled tokens are guesses";
        if (squeezed) EXPECT_GT(drafted.stats.num_preemptions, 0U);
      }
    }
  }
}

TEST_P(DraftedEngine, AcceptsAllDraftsWhenTheDraftModelIsTheTarget) {
  options_.model = options_.draft_model = llama_;
  options_.speculation.num_speculative_tokens = 3;
  std::vector<EngineRequest> requests = drafted_requests();
  for (EngineRequest& request : requests) {
    request.sampling.temperature = 0.0F;
    request.sampling.repetition_penalty = 1.0F;
  }
  const SpeculationStats drafts = answers_of(options_, requests).stats.speculation.value();
  EXPECT_GT(drafts.num_draft_tokens, kDraftRequests * kDraftOutputs / 4);
  EXPECT_EQ(drafts.num_accepted_tokens, drafts.num_draft_tokens);
}

TEST_P(DraftedEngine, ADraftModelMayHaveAShorterContextThanTheTarget) {
  ModelConfig config = tiny::small_llama();
  config.context_length = 64;
  options_.model = llama_;
  std::vector<EngineRequest> requests = drafted_requests();
  requests.resize(3);
  for (EngineRequest& request : requests) request.prompt.resize(50, 1);
  const DraftedAnswers plain = answers_of(options_, requests);
  options_.draft_model = folder_.file("short.gguf");
  tiny::write_gguf(options_.draft_model, config, "Q4_1");
  const DraftedAnswers drafted = answers_of(options_, requests, false);
  EXPECT_EQ(drafted.tokens, plain.tokens);
  EXPECT_EQ(drafted.logprobs, plain.logprobs);
}

TEST_P(DraftedEngine, AnInt8DraftModelProposesForABf16Target) {
  options_.model = windowed_;
  options_.activations = ActivationMode::bf16;
  std::vector<EngineRequest> requests = drafted_requests();
  requests.resize(2);
  const DraftedAnswers plain = answers_of(options_, requests);
  options_.draft_model = llama_;
  const DraftedAnswers drafted = answers_of(options_, requests, false);
  EXPECT_EQ(drafted.tokens, plain.tokens);
  EXPECT_EQ(drafted.logprobs, plain.logprobs);
  if (!kSanitized) EXPECT_GT(drafted.stats.speculation.value().num_draft_tokens, 0U);
}

ModelInfo text_model(std::uint32_t vocab_size, std::vector<std::string> tokens) {
  ModelInfo model;
  model.num_layers = 2;
  model.num_kv_heads = 2;
  model.head_dim = 8;
  model.vocab_size = vocab_size;
  model.context_length = 512;
  TokenizerSpec spec;
  spec.tokens = std::move(tokens);
  model.tokenizer = std::make_shared<const TokenizerSpec>(std::move(spec));
  return model;
}

std::string refusal_of(const ModelInfo& draft, const ModelInfo& target) {
  const Result<void> checked = check_draft(draft, "small.gguf", target, "large.gguf");
  if (checked) return {};
  EXPECT_EQ(checked.error().field, "speculative_model");
  EXPECT_FALSE(checked.error().remedy.empty());
  return checked.error().message;
}

TEST(CheckDraft, RequiresEqualTokenIds) {
  const ModelInfo target = text_model(4, {"a", "b", "c", "d"});
  EXPECT_EQ(refusal_of(target, target), "");
  EXPECT_EQ(refusal_of(text_model(4, {"a", "x", "c", "y"}), target),
            "the vocabularies differ: token 1 is 'x' in small.gguf, but 'b' in large.gguf");
  EXPECT_EQ(refusal_of(text_model(132, {"a", "b", "c", "d"}), target), "") << "padding";
  EXPECT_EQ(refusal_of(text_model(3, {"a", "b", "c"}), target), "");
  EXPECT_EQ(refusal_of(text_model(133, {"a", "b", "c", "d"}), target),
            "the vocabularies differ: small.gguf has 133 tokens, large.gguf has 4");
  EXPECT_EQ(refusal_of(text_model(4, {}), target), "");
  EXPECT_NE(refusal_of(text_model(5, {}), target), "") << "only the size is known";
}

TEST(CheckDraft, ComparesOnlyTokensThatBothModelsHave) {
  const ModelInfo target = text_model(132, {"a", "b", "c", "d"});
  EXPECT_EQ(refusal_of(text_model(4, {"a", "b", "c", "d"}), target), "") << "the target may be padded, too";
  EXPECT_EQ(refusal_of(text_model(3, {"a", "b", "c", "d"}), target),
            "the vocabularies differ: small.gguf has 3 tokens, large.gguf has 132");
  EXPECT_EQ(refusal_of(text_model(4, {"a", "b", "c", "d"}), text_model(4, {"a", "b", "c"})), "");
  EXPECT_EQ(refusal_of(text_model(3, {"a", "b", "c", "x"}), text_model(4, {"a", "b", "c", "d"})), "")
      << "a draft model without the token cannot propose it";
  EXPECT_NE(refusal_of(text_model(4, {"a", "b", "c", "x"}), text_model(4, {"a", "b", "c", "d"})), "") << "the last common token";
  EXPECT_NE(refusal_of(text_model(4, {"x", "b", "c", "d"}), text_model(4, {"a", "b", "c", "d"})), "") << "the first token";
  EXPECT_NE(refusal_of(text_model(5, {"a"}), text_model(4, {})), "") << "only one model has texts";
  EXPECT_NE(refusal_of(text_model(5, {}), text_model(4, {"a"})), "") << "only one model has texts";
}

TEST(CheckDraft, RefusesModelsThatCannotProposeTokens) {
  struct Case {
    const char* message;
    const char* remedy;
    std::function<void(ModelInfo&)> change;
  };
  const Case cases[] = {
      {"small.gguf has no output matrix (lm_head.weight)", "use a draft model that generates text",
       [](ModelInfo& m) { m.has_output = false; }},
      {"small.gguf has an encoder", "use a draft model that takes text input only", [](ModelInfo& m) { m.encoder.num_positions = 10; }},
      {"small.gguf takes images as input", "use a draft model that takes text input only, such as its GGUF file",
       [](ModelInfo& m) { m.pictures.processor = "llava"; }},
      {"small.gguf has layers with states, which cannot be rolled back after a rejected draft token",
       "use a draft model with attention in all layers", [](ModelInfo& m) { m.state_shapes = {{4, 4}}; }},
  };
  const ModelInfo target = text_model(4, {});
  for (const Case& c : cases) {
    ModelInfo draft = target;
    c.change(draft);
    const Result<void> checked = check_draft(draft, "small.gguf", target, "large.gguf");
    ASSERT_FALSE(checked.has_value()) << c.message;
    EXPECT_EQ(checked.error().code, ErrorCode::unsupported);
    EXPECT_EQ(checked.error().field, "speculative_model");
    EXPECT_EQ(checked.error().message, c.message);
    EXPECT_EQ(checked.error().remedy, c.remedy);
  }
  ModelInfo windowed = target;
  windowed.sliding_windows = {16, 0};
  EXPECT_EQ(refusal_of(windowed, target), "");
  const Result<void> differs = check_draft(text_model(5, {}), "small.gguf", target, "large.gguf");
  ASSERT_FALSE(differs.has_value());
  EXPECT_EQ(differs.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(differs.error().remedy, "use a smaller model of the same family");
}

TEST(OpenDraft, ReportsTheOptionAndThePathWhenNoFileExists) {
  EngineOptions options;
  const ModelInfo target = text_model(4, {});
  EXPECT_FALSE(open_draft(options, target).value().has_value());
  options.draft_model = "/nowhere/small.gguf";
  const auto opened = open_draft(options, target);
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error().field, "speculative_model");
  const std::string text = opened.error().to_string();
  EXPECT_NE(text.find("/nowhere/small.gguf"), std::string::npos) << text;
  EXPECT_EQ(text.find("/nowhere/small.gguf"), text.rfind("/nowhere/small.gguf")) << "the path is there once: " << text;
}

TEST(OpenDraft, NamesThePathAndTheFaultOfAFileThatIsNoModel) {
  const tiny::TempFolder folder;
  const std::string path = folder.file("draft.gguf");
  std::ofstream(path) << "no model";
  EngineOptions options;
  options.draft_model = path;
  const auto direct = ModelFile::open(path);
  ASSERT_FALSE(direct.has_value());
  const auto opened = open_draft(options, text_model(4, {}));
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error().code, direct.error().code);
  EXPECT_EQ(opened.error().field, "speculative_model");
  EXPECT_NE(opened.error().message.find(path), std::string::npos) << opened.error().message;
  EXPECT_NE(opened.error().message.find(direct.error().message), std::string::npos) << opened.error().message;
  EXPECT_NE(opened.error().message.find(direct.error().field), std::string::npos) << opened.error().message;
}

TEST(PlanDraftKv, HoldsAsManyTokensAsTheTargetWithinAQuarterOfItsBytes) {
  ModelInfo target = text_model(4, {});
  target.num_layers = 40;
  EngineOptions options;
  options.cache.num_blocks = 101;
  options.scheduler.max_model_len = 512;
  const KvLayout layout = plan_kv_layout(target, options).value();
  ModelInfo draft = text_model(4, {});
  EXPECT_EQ(plan_draft_kv(draft, options, layout)->num_blocks, 101U) << "as many tokens";
  draft.num_layers = 20;
  EXPECT_EQ(plan_draft_kv(draft, options, layout)->num_blocks, 1U + 50U) << "a quarter of the bytes";
  draft.num_layers = 2;
  draft.sliding_windows = {16, 0};
  EXPECT_EQ(plan_draft_kv(draft, options, layout)->num_blocks, 1U + 2 * 100U) << "two groups with all tokens";
  options.scheduler.max_num_seqs = 1;
  EXPECT_EQ(plan_draft_kv(draft, options, layout)->num_blocks, 1U + 2 * 32U) << "no more than requests may have";
  draft.sliding_windows.clear();
  for (const auto& [max_model_len, num_blocks] : {std::pair(497U, 32U), {496U, 31U}, {16U, 1U}, {2U, 1U}}) {
    options.scheduler.max_model_len = max_model_len;
    EXPECT_EQ(plan_draft_kv(draft, options, layout)->num_blocks, 1U + num_blocks) << max_model_len;
  }
}

TEST(PlanDraftKv, HasABlockForEachGroupHoweverSmallTheTargetIs) {
  ModelInfo target = text_model(4, {});
  EngineOptions options;
  options.cache.num_blocks = 3;
  options.scheduler.max_model_len = 32;
  const KvLayout layout = plan_kv_layout(target, options).value();
  ModelInfo draft = text_model(4, {});
  draft.num_layers = 40;
  EXPECT_EQ(plan_draft_kv(draft, options, layout)->num_blocks, 1U + 1U);
  draft.sliding_windows.assign(40, 0);
  for (std::size_t i = 0; i < 20; ++i) draft.sliding_windows[i] = 16;
  const KvLayout windowed = plan_draft_kv(draft, options, layout).value();
  EXPECT_EQ(windowed.groups.size(), 2U);
  EXPECT_EQ(windowed.num_blocks, 1U + 2U);
}

TEST(PlanDraftKv, HasRoomForTheLargestGroupOfTheTarget) {
  EngineOptions options;
  options.scheduler.max_model_len = 512;
  KvLayout target{.num_blocks = 11, .dtype = KvDtype::bf16, .groups = {}, .layers = {}, .page_bytes = {1U << 20U}};
  for (const std::uint32_t block_size : {16U, 32U, 8U})
    target.groups.push_back({.spec = {}, .block_size = block_size, .kernel_block_size = block_size, .layers = {0}});
  const ModelInfo draft = text_model(4, {});
  EXPECT_EQ(plan_draft_kv(draft, options, target)->num_blocks, 1U + 20U) << "ten blocks of 32 tokens, without the null block";
  options.cache.mamba_cache_mode = MambaCacheMode::align;
  EXPECT_EQ(plan_draft_kv(draft, options, target)->num_blocks, 1U + 20U) << "the states of the target do not concern the draft model";
}

TEST(PlanDraftKv, TakesAtMostAQuarterOfTheBytesAndTheMostBlocks) {
  EngineOptions options;
  options.scheduler.max_model_len = 1U << 23U;
  KvLayout target{.num_blocks = 4, .dtype = KvDtype::bf16, .groups = {}, .layers = {}, .page_bytes = {5 * 2048}};
  target.groups.push_back({.spec = {}, .block_size = 1024, .kernel_block_size = 1024, .layers = {0}});
  const ModelInfo draft = text_model(4, {});  // a block has 2048 bytes
  EXPECT_EQ(plan_draft_kv(draft, options, target)->num_blocks, 1U + 5U);
  target.page_bytes = {5 * 2048 - 1};
  EXPECT_EQ(plan_draft_kv(draft, options, target)->num_blocks, 1U + 4U);
  target.num_blocks = 1U << 24U;
  target.page_bytes = {1U << 20U};
  EXPECT_EQ(plan_draft_kv(draft, options, target)->num_blocks, 1U << 24U);
}

}  // namespace
}  // namespace quire
