// Assembles an engine around a worker: the core with its event sinks, and the parts that steps need. Called once, by the thread that builds
// the engine, before any other thread can access the engine.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/check_served.h"
#include "engine/engine_impl.h"
#include "quire/journal.h"

namespace quire {
namespace {

// Returns the core's event sink: the only one of tracer, explainer, curve sampler and the user's sink; an EventFanOut if there are several;
// null without any of these.
EventSink* make_event_sink(StepLoop::Options& loop) {
  std::vector<EventSink*> sinks = {loop.tracer.get(), loop.explainer.get(), loop.curve.sampler.get(), loop.seams.events.get()};
  std::erase(sinks, nullptr);
  if (sinks.size() < 2) return sinks.empty() ? nullptr : sinks.front();
  loop.fan = std::make_shared<EventFanOut>(std::move(sinks));
  return loop.fan.get();
}

// Returns the connector's name in the trace: the names of the tiers, as "dram+disk"; "connector" for a connector that is not a tier; both,
// as "disk+connector"; or empty if there is no connector.
std::string describe_connector(const EngineSeams& seams, const KvTiers& tiers) {
  std::string names;
  for (const auto& tier : tiers)
    if (tier->is_builtin()) names += (names.empty() ? "" : "+") + tier->stats().name;
  const bool has_other = !seams.choice.connectors.empty() || (names.empty() && seams.connector != nullptr);
  return has_other ? names + (names.empty() ? "connector" : "+connector") : names;
}

TracedTier traced(const KvTierStats& tier) {
  return {.num_free = tier.num_places - tier.num_used_slots - tier.num_unread_slots,
          .num_places = tier.num_places,
          .num_held = tier.num_used_slots};
}

// Returns whether loads may begin early: there is at least one of quire's tiers, and none of these has the policy `exact`, under which
// loads must begin in the same steps as with vLLM's connector.
bool can_load_early(const KvTiers& tiers) {
  const auto is_builtin = [](const auto& tier) { return tier->is_builtin(); };
  const auto is_exact = [](const auto& tier) { return tier->is_builtin() && tier->policy() == KvTierPolicy::exact; };
  return std::ranges::any_of(tiers, is_builtin) && std::ranges::none_of(tiers, is_exact);
}

// Creates the sampler of the hit-rate curve. A tier also holds copies of the blocks in the cache. Cache and tier together therefore find as
// much as a cache of the size of the larger one, not of the sum of both.
HitRateSampling make_hit_rate_sampling(const EngineOptions& options, const CoreConfig& config, std::uint64_t block_bytes,
                                       const KvTiers& tiers) {
  const auto none = [](const char* field, const char* problem, const char* remedy) {
    return HitRateSampling{.refusal = {ErrorCode::unsupported, field, problem, remedy}};
  };
  if (options.curve_blocks == 0) return none("curve_blocks", "is 0, so no block is sampled", "start the server with --curve-blocks 131072");
  if (!config.prefix_cache.enable_prefix_caching)
    return none("enable_prefix_caching", "is off, so the hit rate is 0 for every cache size",
                "start the server with --enable-prefix-caching");
  if (config.prefix_cache.lifo_free_blocks)
    return none("lifo_free_blocks", "is on, and the eviction order then depends on the cache size", "start the server without --kv-lifo");
  HitRateSampling reuse{.costs = {.block_bytes = block_bytes}};
  std::vector<std::uint64_t> sizes;
  std::uint64_t size = config.kv.num_blocks - 1;
  std::string name = "now";
  for (const auto& tier : tiers) {
    if (!tier->is_builtin() || !tier->holds_blocks()) continue;
    size = std::max<std::uint64_t>(size, tier->stats().num_places);
    name += " + " + tier->stats().name;
    sizes.push_back(size);
    if (size != config.kv.num_blocks - 1) reuse.costs.named.emplace_back(name, size);
  }
  reuse.sampler = std::make_shared<CurveSampler>(CurveOptions::of(config, options.curve_blocks, sizes));
  return reuse;
}

}  // namespace

Result<std::unique_ptr<Engine>> make_engine(ResolvedEngine resolved, EngineParts parts) {
  const EngineOptions& options = resolved.options;
  const ModelInfo& model = resolved.model;
  const EngineSeams& seams = parts.seams;
  const KvTiers& tiers = parts.tiers;
  const SchedulerOptions& scheduler = options.scheduler;
  StepLoop::Options loop{.eos_ids = model.tokenizer->eog,
                         .seed = options.seed,
                         .max_num_seqs = options.scheduler.max_num_seqs,
                         .step_time_target_s = 1e-3 * options.step_time_target_ms,
                         .async_scheduling = scheduler.async_scheduling,
                         .counts_common_prefix = options.cache.count_common_prefix,
                         .drains_for_forks = model.has_states()};
  resolved.core.fixes = engine_fixes(can_load_early(tiers));
  const CoreConfig& config = resolved.core;
  if (!options.trace.path.empty()) {
    auto tracer = Tracer::create(options.trace, {scheduler.policy, scheduler.max_num_seqs, scheduler.max_num_batched_tokens,
                                                 describe_connector(seams, tiers), options.cache.count_common_prefix});
    if (!tracer) return std::unexpected(tracer.error());
    loop.tracer = std::move(*tracer);
    const auto shown = std::ranges::find_if(tiers, [](const auto& tier) { return tier->holds_blocks(); });
    if (shown != tiers.end()) loop.tracer->set_tier_source([tier = *shown] { return traced(tier->stats()); });
  }
  if (options.explained_requests > 0) loop.explainer = std::make_shared<Explainer>(ExplainOptions::of(config, options.explained_requests));
  loop.curve = make_hit_rate_sampling(options, config, resolved.layout.bytes_per_block(), tiers);
  if (auto served = check_served(config, parts.worker->capabilities()); !served) return std::unexpected(served.error());
  if (auto served = check_seams(seams, config, parts.worker->capabilities()); !served) return std::unexpected(served.error());
  loop.seams = seams;
  loop.adapters = std::move(parts.adapters.live);
  loop.encoder_inputs = std::move(parts.encoder_inputs);
  loop.num_encoder_positions = model.encoder.num_positions;
  loop.supports_images = model.pictures.any();
  if (loop.seams.clock == nullptr) loop.seams.clock = std::make_shared<SteadyClock>();
  for (const std::shared_ptr<KvTier>& tier : tiers)
    if (tier->role() != KvRole::none) loop.take_transfer_params = [tier](RequestId request) { return tier->take_transfer_params(request); };
  if (has_structured_output() && parts.worker->capabilities().token_masks)
    loop.grammars = std::make_shared<Grammars>(model.tokenizer, model.vocab_size);
  CoreSeams core_seams{.connector = seams.connector.get(),
                       .encoder_connector = seams.encoder_connector.get(),
                       .grammar = loop.grammars.get(),
                       .tools = loop.tools.get(),
                       .events = make_event_sink(loop)};
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
  return std::make_unique<EngineImpl>(std::move(resolved), *std::move(core), std::move(loop), std::move(parts));
}

}  // namespace quire
