// Called by `quire serve` while it builds its command line, once, before any thread is started. A flag only writes its option: whether the
// options go together is decided where the engine is made (engine/tiers/tier_check.h), so that embedders get the same errors.
#include "cli/flags/tier_flags.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>

#include "cli/flags/choice_flag.h"
#include "cli/flags/engine_flags.h"

namespace quire {
namespace {

void add_dram_flags(CLI::App& app, KvDramOptions& kv_dram) {
  CLI::Option* const size =
      app.add_option(
             "--kv-dram", kv_dram.bytes,
             "Keep KV blocks in so much host memory too. For a KV cache on a device: here --kv-cache-memory does more with the same memory "
             "(default: none)")
          ->transform(bytes_flag());
  app.add_option("--kv-dram-policy", kv_dram.eviction_policy, "Which blocks go when it is full: as --kv-disk-policy")
      ->capture_default_str()
      ->needs(size);
}

void add_disk_flags(CLI::App& app, KvDiskOptions& kv_disk) {
  CLI::Option* const folder =
      app.add_option("--kv-disk", kv_disk.folder,
                     "Keep KV blocks in this folder too: prompts find what fell out of memory, or what an earlier run has computed, also "
                     "with sliding windows. One model and one process per folder; docs/tiers.md")
          ->type_name("DIR");
  app.add_option(
         "--kv-disk-budget", kv_disk.budget_bytes,
         "Most that the folder takes of the file system, taken at once where that can promise it (default auto: a quarter of what is "
         "free there, at most 64GiB)")
      ->transform(bytes_flag())
      ->needs(folder);
  app.add_option("--kv-disk-policy", kv_disk.eviction_policy,
                 "Which blocks go when the folder is full: lru, arc (vLLM's), arc_paper (ARC as published), s3fifo, or one of a "
                 "--kv-connector-library")
      ->capture_default_str()
      ->needs(folder);
  app.add_flag(
         "--kv-disk-write-through", kv_disk.write_through,
         "Beside --kv-dram: store each block in both as it fills (default: in host memory, and it moves down to the folder as it cools; "
         "with --kv-policy exact always in both)")
      ->needs(folder);
  app.add_option("--kv-disk-bandwidth", kv_disk.bytes_per_second,
                 "Bytes per second that are read from the folder at most, and written to it (default 0: as fast as the disk is)")
      ->transform(bytes_flag())
      ->needs(folder);
}

void add_remote_flags(CLI::App& app, KvRemoteOptions& kv_remote) {
  CLI::Option* const address =
      app.add_option("--kv-remote", kv_remote.address,
                     "Keep KV blocks in this store too, which servers share: redis://[user:password@]host[:port][/database], rediss:// for "
                     "TLS, or unix:///path; Redis, Redis Cluster, or what speaks as they do; docs/tiers.md")
          ->type_name("URL")
          ->envname("QUIRE_KV_REMOTE");
  app.add_option("--kv-remote-key", kv_remote.key_file,
                 "A file of 16 random bytes or more, the same on all servers that share the store: nothing that was not stored with it is "
                 "used. Needed unless the store is on this machine")
      ->type_name("FILE")
      ->needs(address);
  app.add_option("--kv-remote-ca", kv_remote.ca_file,
                 "Certificates (PEM) that a rediss:// store's is checked against (default: the system's)")
      ->type_name("FILE")
      ->needs(address);
  app.add_option("--kv-remote-budget", kv_remote.budget_bytes,
                 "Most that this server has in the store of what it has stored there, and knows of what others have (default auto: 16GiB)")
      ->transform(bytes_flag())
      ->needs(address);
  app.add_option("--kv-remote-ttl", kv_remote.ttl_s, "Seconds after which the store forgets a block that nobody has stored or loaded")
      ->capture_default_str()
      ->needs(address);
}

void add_peer_cache_flags(CLI::App& app, KvPeerCacheOptions& kv_peer_cache) {
  app.add_option(
         "--kv-peers", kv_peer_cache.peers,
         "Ask these servers of the same model for KV blocks that this one lacks: where they listen (--kv-share), 16 at most. What they "
         "do not tell or give in time is computed; docs/tiers.md")
      ->type_name("HOST:PORT[,...]")
      ->delimiter(',');
  app.add_option("--kv-share", kv_peer_cache.share,
                 "Listen here for servers that ask for KV blocks, and give them those that --kv-dram holds. An address that is not this "
                 "machine's own needs --kv-key; port 0: a free one")
      ->type_name("HOST:PORT");
}

void add_peer_flags(CLI::App& app, KvPeerOptions& kv_peer, KvPeerCacheOptions& kv_peer_cache) {
  add_choice<KvRole>(
      app, "--kv-role", kv_peer.role,
      "Prefill and decode apart: what this server does with the KV blocks of requests that come with vLLM's kv_transfer_params. producer: "
      "computes prompts, and keeps their blocks for others. consumer: loads them, and goes on. Or both (default none: such requests are "
      "refused); docs/disaggregation.md",
      {{"none", KvRole::none}, {"producer", KvRole::producer}, {"consumer", KvRole::consumer}, {"both", KvRole::both}});
  CLI::Option* const role = app.get_option("--kv-role");
  app.add_option("--kv-host", kv_peer.host,
                 "The address of this machine at which a producer gives its blocks, and which it tells consumers")
      ->capture_default_str()
      ->needs(role);
  app.add_option("--kv-port", kv_peer.port, "The port there; 0: a free one")->capture_default_str()->needs(role);
  app.add_option_function<std::string>(
         "--kv-key", [&](const std::string& file) { kv_peer.key_file = kv_peer_cache.key_file = file; },
         "A file of 16 random bytes or more, the same on all these servers, and on those of --kv-peers and --kv-share: blocks are given to "
         "and taken from nobody without it. Needed unless all of them are on this machine")
      ->type_name("FILE");
  app.add_option("--kv-lease", kv_peer.lease_s, "Seconds that a producer keeps the blocks of a request for a consumer that does not come")
      ->capture_default_str()
      ->needs(role);
}

// Of all tiers.
void add_shared_flags(CLI::App& app, TierFlags& flags) {
  app.add_option_function<std::string>(
         "--kv-policy",
         [&](const std::string& name) {
           flags.policy = flags.kv_dram.policy = flags.kv_disk.policy = flags.kv_remote.policy = flags.kv_peer_cache.policy =
               name == "exact" ? KvTierPolicy::exact : KvTierPolicy::measured;
         },
         "Of --kv-dram, --kv-disk, --kv-remote, --kv-peers and --kv-connector OffloadingConnector. exact: store and load when vLLM's "
         "connector would. "
         "measured: "
         "compute "
         "what would take longer to load, and let no step wait for a store (default measured)")
      ->check(CLI::IsMember({"exact", "measured"}));
  app.add_flag_function(
      "--kv-join-loads",
      [&](std::int64_t) {
        flags.kv_dram.join_loads = flags.kv_disk.join_loads = flags.kv_remote.join_loads = flags.kv_peer_cache.join_loads = true;
      },
      "A request loads blocks that another one is loading from --kv-dram, --kv-disk, --kv-remote or --kv-peers as well, instead of waiting "
      "for these "
      "(default off, "
      "as "
      "vLLM)");
  app.add_option_function<std::uint32_t>(
         "--kv-store-threshold",
         [&](std::uint32_t threshold) { flags.kv_dram.store_threshold = flags.kv_disk.store_threshold = threshold; },
         "Store a block in --kv-dram and --kv-disk only when prompts have asked for it so many times (vLLM's store_threshold; default 0: "
         "store all)")
      ->type_name("UINT");
  app.add_option_function<std::uint32_t>(
         "--kv-max-tracker-size", [&](std::uint32_t size) { flags.kv_dram.max_tracker_size = flags.kv_disk.max_tracker_size = size; },
         "Names of blocks that are counted for that, in each tier (vLLM's max_tracker_size; default 64000)")
      ->type_name("UINT");
}

// ExampleConnector and others, as they are built and installed with the command; nullopt: they are not, or are given anyway.
std::optional<std::string> find_own_library(const std::vector<std::string>& given) {
  constexpr const char* kName = "libquire_example_connectors.so";
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (const char* place : {".", "../lib/quire", "../lib/x86_64-linux-gnu/quire", "../lib/aarch64-linux-gnu/quire", "../lib64/quire"}) {
    const std::filesystem::path path = std::filesystem::weakly_canonical(folder / place / kName, error);
    if (error || !std::filesystem::exists(path, error)) continue;
    const auto is_it = [&](const std::string& other) { return std::filesystem::equivalent(other, path, error); };
    return std::ranges::any_of(given, is_it) ? std::nullopt : std::optional(path.string());
  }
  return std::nullopt;
}

void add_connector_flags(CLI::App& app, TierFlags& flags) {
  CLI::Option* const connector =
      app.add_option(
             "--kv-connector", flags.kv_connectors,
             "Who else keeps KV blocks: OffloadingConnector,cpu_bytes_to_use=1000000000; SimpleCPUOffloadConnector, ExampleConnector (a "
             "folder), "
             "DecodeBenchConnector (made up), or one of a library; repeatable: all store, and a request loads from the first that has "
             "something, from --kv-dram, --kv-disk and --kv-remote before all others; docs/embedding.md")
          ->type_name("NAME[,key=value...]");
  app.add_option("--kv-connector-library", flags.kv_connector_libraries,
                 "A shared library with connectors, tiers or eviction policies of other names; repeatable")
      ->type_name("PATH");
  app.add_flag("--kv-connector-longest", flags.kv_connector_longest,
               "A request loads from the connector (or the tiers) that has most of its prompt")
      ->needs(connector);
}

}  // namespace

void add_tier_flags(CLI::App& app, EngineOptions& options, TierFlags& flags) {
  add_dram_flags(app, flags.kv_dram);
  add_disk_flags(app, flags.kv_disk);
  add_remote_flags(app, flags.kv_remote);
  add_peer_flags(app, flags.kv_peer, flags.kv_peer_cache);
  add_peer_cache_flags(app, flags.kv_peer_cache);
  add_shared_flags(app, flags);
  add_connector_flags(app, flags);
  add_choice<KvLoadFailurePolicy>(
      app, "--kv-load-failure-policy", options.kv_load_failure,
      "What becomes of requests whose blocks a tier or connector could not load: recompute, their tokens are computed here, or fail, they "
      "end in error (default recompute)",
      {{"fail", KvLoadFailurePolicy::fail}, {"recompute", KvLoadFailurePolicy::recompute}});
}

Result<ConnectorChoice> connectors_of(const TierFlags& flags) {
  if (!flags.kv_connector_libraries.empty() && flags.kv_connectors.empty() && flags.kv_disk.folder.empty() && flags.kv_dram.bytes == 0)
    return fail(ErrorCode::invalid_argument, "kv_connector_library", "nothing of it is asked for",
                "name a connector of it with --kv-connector, or an eviction policy with --kv-disk-policy");
  ConnectorChoice choice{.registry = std::make_shared<ConnectorRegistry>(),
                         .connectors = {},
                         .loads_longest = flags.kv_connector_longest,
                         .policy = flags.policy};
  for (const std::string& path : flags.kv_connector_libraries) choice.registry->add_library(path);
  if (const auto own = find_own_library(flags.kv_connector_libraries)) choice.registry->add_library(*own, true);
  for (const std::string& text : flags.kv_connectors) {
    auto connector = parse_named_connector(text);
    if (!connector) return std::unexpected(connector.error());
    choice.connectors.push_back(*std::move(connector));
  }
  return choice;
}

}  // namespace quire
