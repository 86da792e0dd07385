// Puts an engine together around a worker: the core with who listens to its decisions, and what steps need beside it. Called once, by the
// thread that wants the engine, before any other knows it.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/check_served.h"
#include "engine/engine_impl.h"
#include "engine/kv_plan.h"
#include "engine/resolve_options.h"
#include "quire/journal.h"

namespace quire {
namespace {

// The core's sink: the trace, the explainer, the curve's sampler, one's own, several of them, or none.
EventSink* tell_events(StepLoop::Options& loop) {
  std::vector<EventSink*> sinks = {loop.tracer.get(), loop.explainer.get(), loop.curve.sampler.get(), loop.seams.events.get()};
  std::erase(sinks, nullptr);
  if (sinks.size() < 2) return sinks.empty() ? nullptr : sinks.front();
  loop.fan = std::make_shared<EventFan>(std::move(sinks));
  return loop.fan.get();
}

// As the trace names it: "dram+disk", "connector" for one that is no tier, "disk+connector", nothing where there is none.
std::string describe_connector(const EngineSeams& seams, const KvTiers& tiers) {
  std::string names;
  for (const auto& tier : tiers)
    if (tier->is_own()) names += (names.empty() ? "" : "+") + tier->stats().name;
  const bool has_other = !seams.choice.connectors.empty() || (names.empty() && seams.connector != nullptr);
  return has_other ? names + (names.empty() ? "connector" : "+connector") : names;
}

TracedTier traced(const KvTierStats& tier) {
  return {.num_free = tier.num_places - tier.num_used_places - tier.num_unread_places,
          .num_places = tier.num_places,
          .num_held = tier.num_used_places};
}

// Exact ones load in the steps in which vLLM's connector would.
bool load_early(const KvTiers& tiers) {
  const auto is_own = [](const auto& tier) { return tier->is_own(); };
  const auto is_exact = [](const auto& tier) { return tier->is_own() && tier->policy() == KvTierPolicy::exact; };
  return std::ranges::any_of(tiers, is_own) && std::ranges::none_of(tiers, is_exact);
}

// A tier keeps copies of what the cache has, too: with it as much is found as with a cache of the larger size of the two, not of both.
FollowedReuse follow_reuse(const EngineOptions& options, const CoreConfig& config, std::uint64_t block_bytes, const KvTiers& tiers) {
  const auto none = [](const char* field, const char* problem, const char* remedy) {
    return FollowedReuse{.refusal = {ErrorCode::unsupported, field, problem, remedy}};
  };
  if (options.curve_blocks == 0) return none("curve_blocks", "is 0: no block is followed", "serve with --curve-blocks 131072");
  if (!config.prefix_cache.enable_prefix_caching)
    return none("enable_prefix_caching", "is off: no size of the cache finds anything", "serve with --enable-prefix-caching");
  if (config.prefix_cache.lifo_free_blocks)
    return none("lifo_free_blocks", "is on: in which order blocks go depends on the size then", "serve without --kv-lifo");
  FollowedReuse reuse{.costs = {.block_bytes = block_bytes}};
  std::vector<std::uint64_t> sizes;
  std::uint64_t size = config.kv.num_blocks - 1;
  std::string name = "now";
  for (const auto& tier : tiers) {
    if (!tier->is_own()) continue;
    size = std::max<std::uint64_t>(size, tier->stats().num_places);
    name += " + " + tier->stats().name;
    sizes.push_back(size);
    if (size != config.kv.num_blocks - 1) reuse.costs.named.emplace_back(name, size);
  }
  reuse.sampler = std::make_shared<CurveSampler>(CurveOptions::of(config, options.curve_blocks, sizes));
  return reuse;
}

}  // namespace

Result<std::unique_ptr<Engine>> make_engine(const EngineOptions& options, const ModelInfo& model, EngineParts parts) {
  const EngineSeams& seams = parts.seams;
  const KvTiers& tiers = parts.tiers;
  const SchedulerOptions& scheduler = options.scheduler;
  StepLoop::Options loop{.eos_ids = model.tokenizer->eog,
                         .seed = options.seed,
                         .async_scheduling = scheduler.async_scheduling,
                         .counts_common_prefix = options.cache.count_common_prefix,
                         .settles_for_forks = model.has_states()};
  CoreConfig config = core_config(options, model);
  config.cures.early_loads = load_early(tiers);
  if (!options.trace.path.empty()) {
    auto tracer = Tracer::create(options.trace, {scheduler.policy, scheduler.max_num_seqs, scheduler.max_num_batched_tokens,
                                                 describe_connector(seams, tiers), options.cache.count_common_prefix});
    if (!tracer) return std::unexpected(tracer.error());
    loop.tracer = std::move(*tracer);
    if (!tiers.empty()) loop.tracer->show_tier([tier = tiers.front()] { return traced(tier->stats()); });
  }
  if (options.explained_requests > 0) loop.explainer = std::make_shared<Explainer>(ExplainOptions::of(config, options.explained_requests));
  loop.curve = follow_reuse(options, config, plan_kv_layout(model, options).value().bytes_per_block(), tiers);
  if (auto served = check_served(config, parts.worker->capabilities()); !served) return std::unexpected(served.error());
  if (auto served = check_seams(seams, config, parts.worker->capabilities()); !served) return std::unexpected(served.error());
  loop.seams = seams;
  loop.adapters = std::move(parts.adapters.live);
  loop.encoder_inputs = std::move(parts.encoder_inputs);
  loop.num_encoder_positions = model.encoder.num_positions;
  if (loop.seams.clock == nullptr) loop.seams.clock = std::make_shared<SteadyClock>();
  for (const std::shared_ptr<KvTier>& tier : tiers)
    if (tier->role() != KvRole::none) loop.transfer_answer = [tier](RequestId request) { return tier->take_answer(request); };
  if (has_structured_output() && parts.worker->capabilities().token_masks)
    loop.grammars = std::make_shared<Grammars>(model.tokenizer, model.vocab_size);
  CoreSeams core_seams{.connector = seams.connector.get(),
                       .encoder_connector = seams.encoder_connector.get(),
                       .grammar = loop.grammars.get(),
                       .tools = loop.tools.get(),
                       .events = tell_events(loop)};
  auto kv_events = KvEventPublisher::create(options.kv_events, config.kv.groups, seams.logger);
  if (!kv_events) return std::unexpected(std::move(kv_events.error()));
  loop.kv_events = std::move(*kv_events);
  if (!options.journal.folder.empty() || options.journal.memory_bytes > 0) {
    auto journal = CoreJournal::create(options.journal, config, core_seams);
    if (!journal) return std::unexpected(std::move(journal.error()));
    loop.journal = std::move(*journal);
    core_seams = loop.journal->seams();
    if (seams.logger != nullptr && !options.journal.folder.empty())
      seams.logger->write(LogLevel::info, "journal_begun", {{"file", loop.journal->path()}});
  }
  auto core = Core::create(config, core_seams);
  if (!core) return std::unexpected(core.error());
  if (loop.tracer != nullptr) loop.tracer->follow(**core);
  if (loop.explainer != nullptr) loop.explainer->follow(**core);
  if (loop.curve.sampler != nullptr) loop.curve.sampler->follow(**core);
  return std::make_unique<EngineImpl>(options, model, std::move(*core), std::move(loop), std::move(parts));
}

}  // namespace quire
