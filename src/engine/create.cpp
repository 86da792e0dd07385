// EngineBuilder::build: a model on this machine's processors.
// Called once, by the thread that wants the engine; threads begin with the parts that need them. In the order of what fails soonest:
// options and tiers before the weights are read, for that may take minutes. An error leaves nothing behind but files of a tier or a trace.
#include "engine/create.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/digest.h"
#include "base/usable_cores.h"
#include "base/usable_memory.h"
#include "core/kv/hash/hash_function.h"
#include "engine/draft.h"
#include "engine/engine_parts.h"
#include "engine/kv_plan.h"
#include "engine/resolve_options.h"
#include "engine/tiers/disk_tier.h"
#include "engine/tiers/dram_tier.h"
#include "engine/tiers/kv_swap.h"
#include "engine/tiers/named_tier.h"
#include "engine/tiers/peer_cache_tier.h"
#include "engine/tiers/peer_tier.h"
#include "engine/tiers/remote_tier.h"
#include "engine/tiers/tier_check.h"
#include "runtime/model/model.h"
#include "runtime/model/weights/adapter.h"
#include "runtime/model/weights/kv_fingerprint.h"
#include "runtime/model/weights/model_file.h"

namespace quire {
namespace {

std::string describe_naming(const PrefixCacheOptions& names) {
  return fmt::format("{} {} {}", to_string(names.hash), to_hex(Sha256::of(std::as_bytes(std::span(names.hash_seed)))),
                     to_hex(names.root_hash));
}

// Blocks, from host memory to disk, as they cool.
bool moves_down(const EngineSeams& seams) {
  return seams.kv_dram.bytes > 0 && !seams.kv_disk.folder.empty() && !seams.kv_disk.write_through &&
         seams.kv_disk.policy == KvTierPolicy::measured;
}

// A request loads the parts of its prompt from where they are.
bool are_spread(const EngineSeams& seams) {
  return moves_down(seams) || !seams.kv_remote.address.empty() || seams.kv_peer.role != KvRole::none || seams.kv_peer_cache.is_on();
}

// Of the tier that is there, besides host memory.
const char* field_of(const EngineSeams& seams) {
  if (!seams.kv_disk.folder.empty()) return "kv_disk";
  if (!seams.kv_remote.address.empty()) return "kv_remote";
  if (!seams.kv_peer_cache.peers.empty()) return "kv_peers";
  return seams.kv_peer_cache.is_on() ? "kv_share" : "kv_role";
}

// Before the model is loaded: what the disk's folder holds is looked up meanwhile. The nearest first; none: none is asked for.
Result<KvTiers> open_tiers(const ModelFile& file, const ModelInfo& model, const EngineOptions& options, const KvLayout& layout,
                           const EngineSeams& seams) {
  KvTiers tiers;
  std::shared_ptr<DramTier> dram;
  const CoreConfig config = core_config(options, model);
  if (seams.kv_dram.bytes > 0) {
    auto tier = DramTier::create(seams.kv_dram, config, layout);
    if (!tier) return std::unexpected(std::move(tier.error()));
    tiers.push_back(dram = *std::move(tier));
  }
  const bool has_disk = !seams.kv_disk.folder.empty(), has_remote = !seams.kv_remote.address.empty();
  const bool has_peers = seams.kv_peer.role != KvRole::none, has_peer_cache = seams.kv_peer_cache.is_on();
  if (!has_disk && !has_remote && !has_peers && !has_peer_cache) return tiers;
  if (Result<void> checked = check_tier(config, field_of(seams)); !checked) return std::unexpected(std::move(checked.error()));
  // What takes no time to see comes before what does.
  if (has_remote)
    if (Result<void> checked = check_remote(seams.kv_remote); !checked) return std::unexpected(std::move(checked.error()));
  if (has_peers)
    if (Result<void> checked = check_peer(seams.kv_peer); !checked) return std::unexpected(std::move(checked.error()));
  if (has_peer_cache)
    if (Result<void> checked = check_peer_cache(seams.kv_peer_cache, dram != nullptr); !checked)
      return std::unexpected(std::move(checked.error()));
  const Result<Sha256Digest> fingerprint =
      kv_fingerprint(file, layout, {options.activations, options.weights.quantise}, describe_naming(config.prefix_cache));
  if (!fingerprint) return std::unexpected(fingerprint.error());
  if (has_disk) {
    auto tier = DiskTier::open(seams.kv_disk, config, layout, *fingerprint);
    if (!tier) return std::unexpected(std::move(tier.error()));
    if (dram != nullptr && moves_down(seams)) (*tier)->take_from(dram);
    tiers.push_back(*std::move(tier));
  }
  if (has_peer_cache) {
    const bool shares = !seams.kv_peer_cache.share.empty();
    auto tier = open_peer_cache(seams.kv_peer_cache, config, layout, *fingerprint, shares ? DramTier::share(dram) : nullptr);
    if (!tier) return std::unexpected(std::move(tier.error()));
    tiers.push_back(*std::move(tier));
  }
  if (has_remote) {
    auto tier = RemoteTier::open(seams.kv_remote, config, layout, *fingerprint);
    if (!tier) return std::unexpected(std::move(tier.error()));
    tiers.push_back(*std::move(tier));
  }
  // The last: what is nearer need not come from another server.
  if (has_peers) {
    auto tier = PeerTier::open(seams.kv_peer, config, layout, *fingerprint);
    if (!tier) return std::unexpected(std::move(tier.error()));
    tiers.push_back(*std::move(tier));
  }
  return tiers;
}

// Of the tiers, where quire has none of that name.
Result<void> find_policies(EngineSeams& seams) {
  if (seams.choice.registry == nullptr) seams.choice.registry = std::make_shared<ConnectorRegistry>();
  const auto find = [&](auto& tier, const char* field) -> Result<void> {
    if (tier.own_policy) return {};
    auto found = seams.choice.registry->policy(tier.eviction_policy);
    if (!found && found.error().field == "eviction_policy") found.error().field = field;
    if (!found) return std::unexpected(std::move(found.error()));
    tier.own_policy = *std::move(found);
    return {};
  };
  if (seams.kv_dram.bytes > 0)
    if (Result<void> found = find(seams.kv_dram, "kv_dram_policy"); !found) return found;
  if (!seams.kv_disk.folder.empty())
    if (Result<void> found = find(seams.kv_disk, "kv_disk_policy"); !found) return found;
  return {};
}

// Those that are asked for by name.
Result<KvTiers> make_connectors(const ModelInfo& model, const EngineOptions& options, const KvLayout& layout, const EngineSeams& seams) {
  std::uint64_t bytes_per_block = 0;
  for (std::uint32_t group = 0; group < layout.groups.size(); ++group)
    bytes_per_block = std::max(bytes_per_block, layout.group_block_bytes(group));
  CoreConfig config = core_config(options, model);
  const auto connectors = expand_connectors(seams.choice.connectors);
  if (!connectors) return std::unexpected(connectors.error());
  KvTiers made;
  for (const NamedConnector& connector : *connectors) {
    auto halves = seams.choice.registry->create(
        connector, {.config = &config, .bytes_per_block = bytes_per_block, .is_measured = seams.choice.policy == KvTierPolicy::measured});
    if (!halves) return std::unexpected(std::move(halves.error()));
    // Its name tells them apart in metrics.
    const auto is_same = [&](const std::shared_ptr<KvTier>& other) { return other->stats().name.starts_with(connector.name); };
    const auto num_same = std::ranges::count_if(made, is_same);
    const std::string name = num_same == 0 ? connector.name : fmt::format("{}_{}", connector.name, num_same + 1);
    made.push_back(std::make_shared<NamedTier>(name, *std::move(halves), seams.choice.policy, bytes_per_block));
  }
  return made;
}

// With those that are to be loaded at the start.
Result<EngineAdapters> make_adapters(const ModelFile& file, const AdapterOptions& options, const EngineSeams& seams) {
  if (!options.is_on()) return EngineAdapters{};
  const auto loader = [config = file.config(), rank = options.max_lora_rank](const std::string& folder) {
    return load_adapter(folder, config, rank);
  };
  EngineAdapters adapters{.registry = std::make_shared<AdapterRegistry>(options.max_cpu_loras, loader, seams.logger),
                          .live = std::make_shared<LiveAdapters>()};
  for (const AdapterModule& module : options.modules) {
    if (auto loaded = adapters.registry->load(module.name, module.path, false); !loaded) {
      loaded.error().field = fmt::format("lora_modules '{}': {}", module.name, loaded.error().field);
      return std::unexpected(std::move(loaded.error()));
    }
  }
  return adapters;
}

}  // namespace

Result<std::unique_ptr<Engine>> EngineBuilder::build(void (*progress)(double)) const {
  return create_engine(options_, progress, nullptr, seams_);
}

Result<std::unique_ptr<Engine>> create_engine(const EngineOptions& options, void (*progress)(double), LogitsObserver* observer,
                                              const EngineSeams& given) {
  const Result<ModelFile> file = ModelFile::open(options.model, options.mmproj);
  if (!file) return std::unexpected(file.error());
  const Result<ModelInfo> header = file->info(options.weights.quantise);
  if (!header) return std::unexpected(header.error());
  const auto opened = open_draft(options, *header);
  if (!opened) return std::unexpected(opened.error());
  const std::optional<DraftFile>& draft = *opened;
  const std::uint64_t draft_bytes = draft.has_value() ? draft->info.weight_bytes : 0;
  const Result<EngineOptions> resolved = resolve_options(options, *header, {usable_cores(), usable_memory_bytes(), draft_bytes});
  if (!resolved) return std::unexpected(resolved.error());
  // Once more, with everything resolved: the numbers of the first plan went into the options.
  auto plan = plan_kv(*header, *resolved);
  if (!plan) return std::unexpected(plan.error());
  const auto num_groups = static_cast<std::uint32_t>(plan->layout.groups.size());
  const auto adapters = make_adapters(*file, resolved->adapters, given);
  if (!adapters) return std::unexpected(adapters.error());
  EngineSeams seams = given;
  if (Result<void> found = find_policies(seams); !found) return std::unexpected(std::move(found.error()));
  auto tiers = open_tiers(*file, *header, *resolved, plan->layout, seams);
  if (!tiers) return std::unexpected(std::move(tiers.error()));
  auto others = make_connectors(*header, *resolved, plan->layout, seams);
  if (!others) return std::unexpected(std::move(others.error()));
  std::vector<ConnectorHalves> halves;
  for (const std::shared_ptr<KvTier>& other : *others)
    halves.push_back({.connector = KvTier::connector_of(other), .transport = KvTier::transport_of(other)});
  if (Result<void> connected = connect_tiers(*tiers, seams, std::move(halves), are_spread(seams)); !connected)
    return std::unexpected(std::move(connected.error()));
  tiers->insert(tiers->end(), others->begin(), others->end());
  std::shared_ptr<Transport> transport = seams.transport;
  std::shared_ptr<KvSwap> swap;
  if (resolved->kv_swap.is_on()) {
    auto created = KvSwap::create(resolved->kv_swap, plan->layout);
    if (!created) return std::unexpected(std::move(created.error()));
    swap = *std::move(created);
    transport = swap->transport_beside(std::move(transport));
  }
  auto cache = KvCache::create(std::move(plan->layout));
  if (!cache) return std::unexpected(cache.error());
  auto pool = std::make_unique<ThreadPool>(resolved->num_threads);
  auto model = load_model(*file, *header,
                          {.activations = resolved->activations,
                           .isa = resolved->isa,
                           .max_num_batched_tokens = resolved->scheduler.max_num_batched_tokens,
                           .max_num_seqs = resolved->scheduler.max_num_seqs,
                           .max_model_len = resolved->scheduler.max_model_len,
                           .num_cache_groups = num_groups,
                           .max_lora_rank = resolved->adapters.is_on() ? resolved->adapters.max_lora_rank : 0,
                           .pool = pool.get(),
                           .progress = progress,
                           .weights = resolved->weights});
  if (!model) return std::unexpected(model.error());
  std::unique_ptr<DraftModel> draft_model;
  if (draft.has_value()) {
    auto loaded = load_draft(*draft, *resolved, *header, cache->layout(), *pool);
    if (!loaded) return std::unexpected(std::move(loaded.error()));
    draft_model = *std::move(loaded);
  }
  const ModelInfo info = (*model)->info();
  auto encoder_inputs = info.has_encoder() || info.pictures.any() ? std::make_shared<LiveEncoderInputs>() : nullptr;
  auto worker = std::make_unique<Worker>(worker_limits(*resolved), std::move(pool), std::move(*model), std::move(*cache),
                                         WorkerSources{std::move(transport), observer, adapters->live.get(), encoder_inputs.get()},
                                         std::move(draft_model));
  return make_engine(*resolved, info,
                     {.worker = std::move(worker),
                      .seams = std::move(seams),
                      .tiers = *std::move(tiers),
                      .swap = std::move(swap),
                      .adapters = *adapters,
                      .encoder_inputs = std::move(encoder_inputs)});
}

Result<ModelInfo> inspect_model(const std::string& path, const std::string& mmproj) {
  return inspect(path, mmproj);
}

}  // namespace quire
