// Implements EngineBuilder::build for a model on this machine's processors. Called once, on the thread that builds the engine; the parts
// start their own threads. Cheap checks come first: options and tiers are checked before the weights are read, which may take minutes.
// After an error, files of a tier, the weights cache, a trace or a journal may remain.
#include "engine/create.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/digest.h"
#include "base/usable_cores.h"
#include "base/usable_memory.h"
#include "core/kv/hash/hash_function.h"
#include "engine/draft.h"
#include "engine/engine_parts.h"
#include "engine/kv_plan.h"
#include "engine/memory_budget.h"
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

// Returns whether host memory moves blocks to disk before it evicts them.
bool spills_to_disk(const EngineSeams& seams) {
  return seams.kv_dram.bytes > 0 && !seams.kv_disk.folder.empty() && !seams.kv_disk.write_through &&
         seams.kv_disk.policy == KvTierPolicy::measured;
}

// Returns whether a request may load the parts of its prompt from several tiers.
bool may_load_from_several_tiers(const EngineSeams& seams) {
  return spills_to_disk(seams) || !seams.kv_remote.address.empty() || seams.kv_peer.role != KvRole::none || seams.kv_peer_cache.is_on();
}

// Returns the option of the first configured tier other than host memory, for error texts.
const char* field_of(const EngineSeams& seams) {
  if (!seams.kv_disk.folder.empty()) return "kv_disk";
  if (!seams.kv_remote.address.empty()) return "kv_remote";
  if (!seams.kv_peer_cache.peers.empty()) return "kv_peers";
  return seams.kv_peer_cache.is_on() ? "kv_share" : "kv_role";
}

// Opens the configured tiers, nearest first; empty: no tier is configured. Called before the model is loaded, so that the disk tier scans
// its folder while the model loads.
Result<KvTiers> open_tiers(const ModelFile& file, const ResolvedEngine& resolved, const EngineSeams& seams) {
  KvTiers tiers;
  std::shared_ptr<DramTier> dram;
  const CoreConfig& config = resolved.core;
  const KvLayout& layout = resolved.layout;
  if (seams.kv_dram.bytes > 0) {
    auto tier = DramTier::create(seams.kv_dram, config, layout);
    if (!tier) return std::unexpected(std::move(tier.error()));
    tiers.push_back(dram = *std::move(tier));
  }
  const bool has_disk = !seams.kv_disk.folder.empty(), has_remote = !seams.kv_remote.address.empty();
  const bool has_peers = seams.kv_peer.role != KvRole::none, has_peer_cache = seams.kv_peer_cache.is_on();
  if (!has_disk && !has_remote && !has_peers && !has_peer_cache) return tiers;
  if (Result<void> checked = check_tier(config, field_of(seams)); !checked) return std::unexpected(std::move(checked.error()));
  // Cheap checks come before expensive ones.
  if (has_remote)
    if (Result<void> checked = check_remote(seams.kv_remote); !checked) return std::unexpected(std::move(checked.error()));
  if (has_peers)
    if (Result<void> checked = check_peer(seams.kv_peer); !checked) return std::unexpected(std::move(checked.error()));
  if (has_peer_cache)
    if (Result<void> checked = check_peer_cache(seams.kv_peer_cache, dram != nullptr); !checked)
      return std::unexpected(std::move(checked.error()));
  const Result<Sha256Digest> fingerprint =
      kv_fingerprint(file, layout, {resolved.options.activations, resolved.options.weights.quantise}, describe_naming(config.prefix_cache));
  if (!fingerprint) return std::unexpected(fingerprint.error());
  if (has_disk) {
    auto tier = DiskTier::open(seams.kv_disk, config, layout, *fingerprint);
    if (!tier) return std::unexpected(std::move(tier.error()));
    if (spills_to_disk(seams)) (*tier)->set_upper_tier(dram);
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
  // The peer tier comes last, so that a request loads a block from another server only if no nearer tier has it.
  if (has_peers) {
    const bool loads = seams.kv_peer.role == KvRole::consumer || seams.kv_peer.role == KvRole::both;
    if (loads && seams.kv_peer.producers.empty() && seams.logger != nullptr)
      seams.logger->write(
          LogLevel::warn, "kv_producers_missing",
          {{"why", "Requests that name a producer are refused. To load blocks from a producer, add --kv-producers HOST:PORT."}});
    auto tier = PeerTier::open(seams.kv_peer, config, layout, *fingerprint);
    if (!tier) return std::unexpected(std::move(tier.error()));
    tiers.push_back(*std::move(tier));
  }
  return tiers;
}

// Looks up the eviction policies of the tiers in the registry, except quire's own policies.
Result<void> find_policies(EngineSeams& seams) {
  if (seams.choice.registry == nullptr) seams.choice.registry = std::make_shared<ConnectorRegistry>();
  const auto find = [&](auto& tier, const char* field) -> Result<void> {
    if (tier.custom_policy) return {};
    auto found = seams.choice.registry->policy(tier.eviction_policy);
    if (!found && found.error().field == "eviction_policy") found.error().field = field;
    if (!found) return std::unexpected(std::move(found.error()));
    tier.custom_policy = *std::move(found);
    return {};
  };
  if (seams.kv_dram.bytes > 0)
    if (Result<void> found = find(seams.kv_dram, "kv_dram_policy"); !found) return found;
  if (!seams.kv_disk.folder.empty())
    if (Result<void> found = find(seams.kv_disk, "kv_disk_policy"); !found) return found;
  return {};
}

// Creates the connectors that the options name.
Result<KvTiers> make_connectors(const ResolvedEngine& resolved, const EngineSeams& seams) {
  std::uint64_t bytes_per_block = 0;
  for (std::uint32_t group = 0; group < resolved.layout.groups.size(); ++group)
    bytes_per_block = std::max(bytes_per_block, resolved.layout.group_block_bytes(group));
  const auto connectors = expand_connectors(seams.choice.connectors);
  if (!connectors) return std::unexpected(connectors.error());
  KvTiers made;
  std::set<std::string> names;
  for (const NamedConnector& connector : *connectors) {
    auto halves = seams.choice.registry->create(
        connector,
        {.config = &resolved.core, .bytes_per_block = bytes_per_block, .is_measured = seams.choice.policy == KvTierPolicy::measured});
    if (!halves) return std::unexpected(std::move(halves.error()));
    // Names label metrics and must therefore be unique.
    const std::string name = unique_name(connector.name, names);
    made.push_back(std::make_shared<NamedTier>(name, *std::move(halves), seams.choice.policy, bytes_per_block));
  }
  return made;
}

// Creates the registry of adapters and loads the adapters in `options.modules`.
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

Result<void> check_fits_machine(const EngineOptions& given, const ResolvedEngine& resolved, const std::optional<DraftFile>& draft,
                                const EngineSeams& seams) {
  std::uint64_t draft_bytes = 0;
  if (draft.has_value()) {
    const Result<KvLayout> cache = plan_draft_kv(draft->info, resolved.options, resolved.layout);
    draft_bytes = draft->info.weight_bytes + (cache ? cache->total_bytes() : 0);
  }
  const std::vector<MemoryShare> shares = memory_shares(given, resolved, draft_bytes, seams);
  if (Result<void> fits = check_memory(shares, total_memory_bytes()); !fits) return fits;
  const std::uint64_t available = usable_memory_bytes();
  if (seams.logger != nullptr && available > 0 && sum_of(shares) > available)
    seams.logger->write(LogLevel::warn, "memory_in_use_by_others", {{"needed_bytes", sum_of(shares)}, {"available_bytes", available}});
  return {};
}

}  // namespace

Result<std::unique_ptr<Engine>> EngineBuilder::build(void (*progress)(double)) const {
  return create_engine(options_, progress, nullptr, seams_);
}

Result<std::unique_ptr<Engine>> create_engine(const EngineOptions& given, void (*progress)(double), LogitsObserver* observer,
                                              const EngineSeams& given_seams) {
  const Result<ModelFile> file = ModelFile::open(given.model, given.mmproj);
  if (!file) return std::unexpected(file.error());
  const Result<ModelInfo> header = file->info(given.weights.quantise);
  if (!header) return std::unexpected(header.error());
  const auto opened = open_draft(given, *header);
  if (!opened) return std::unexpected(opened.error());
  const std::optional<DraftFile>& draft = *opened;
  const std::uint64_t draft_bytes = draft.has_value() ? draft->info.weight_bytes : 0;
  Result<ResolvedEngine> resolved =
      resolve_options(given, *header, {usable_cores(), usable_memory_bytes(), draft_bytes, sum_of(tier_shares(given_seams))});
  if (!resolved) return std::unexpected(resolved.error());
  if (Result<void> fits = check_fits_machine(given, *resolved, draft, given_seams); !fits) return std::unexpected(std::move(fits.error()));
  const EngineOptions& options = resolved->options;
  const auto adapters = make_adapters(*file, options.adapters, given_seams);
  if (!adapters) return std::unexpected(adapters.error());
  EngineSeams seams = given_seams;
  if (Result<void> found = find_policies(seams); !found) return std::unexpected(std::move(found.error()));
  auto tiers = open_tiers(*file, *resolved, seams);
  if (!tiers) return std::unexpected(std::move(tiers.error()));
  auto others = make_connectors(*resolved, seams);
  if (!others) return std::unexpected(std::move(others.error()));
  std::vector<ConnectorAndTransport> halves;
  for (const std::shared_ptr<KvTier>& other : *others)
    halves.push_back({.connector = KvTier::connector_of(other), .transport = KvTier::transport_of(other)});
  if (Result<void> connected = connect_tiers(*tiers, seams, std::move(halves), may_load_from_several_tiers(seams)); !connected)
    return std::unexpected(std::move(connected.error()));
  tiers->insert(tiers->end(), others->begin(), others->end());
  std::shared_ptr<Transport> transport = seams.transport;
  std::shared_ptr<KvSwap> swap;
  if (options.kv_swap.is_on()) {
    auto created = KvSwap::create(options.kv_swap, resolved->layout);
    if (!created) return std::unexpected(std::move(created.error()));
    swap = *std::move(created);
    transport = swap->transport_with(std::move(transport));
  }
  auto cache = KvCache::create(resolved->layout);
  if (!cache) return std::unexpected(cache.error());
  auto pool = std::make_unique<ThreadPool>(options.num_threads);
  auto model = load_model(*file, *header,
                          {.activations = options.activations,
                           .isa = options.isa,
                           .max_num_batched_tokens = options.scheduler.max_num_batched_tokens,
                           .max_num_seqs = options.scheduler.max_num_seqs,
                           .max_model_len = options.scheduler.max_model_len,
                           .num_cache_groups = static_cast<std::uint32_t>(resolved->layout.groups.size()),
                           .max_lora_rank = options.adapters.is_on() ? options.adapters.max_lora_rank : 0,
                           .pool = pool.get(),
                           .progress = progress,
                           .weights = options.weights});
  if (!model) return std::unexpected(model.error());
  std::unique_ptr<DraftModel> draft_model;
  if (draft.has_value()) {
    auto loaded = load_draft(*draft, options, *header, cache->layout(), *pool);
    if (!loaded) return std::unexpected(std::move(loaded.error()));
    draft_model = *std::move(loaded);
  }
  resolved->model = (*model)->info();
  const ModelInfo& info = resolved->model;
  auto encoder_inputs = info.has_encoder() || info.pictures.any() ? std::make_shared<LiveEncoderInputs>() : nullptr;
  auto worker = std::make_unique<Worker>(resolved->limits, std::move(pool), std::move(*model), std::move(*cache),
                                         WorkerSources{std::move(transport), observer, adapters->live.get(), encoder_inputs.get()},
                                         std::move(draft_model));
  return make_engine(*std::move(resolved), {.worker = std::move(worker),
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
