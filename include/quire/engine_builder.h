#pragma once
// Makes an engine, with parts of one's own where they are given:
//
//   const auto engine = EngineBuilder({.model = "model.gguf"}).events(sink).build();
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "quire/base/api.h"
#include "quire/base/clock.h"
#include "quire/base/error.h"
#include "quire/base/events.h"
#include "quire/base/logger.h"
#include "quire/base/options.h"
#include "quire/connector.h"
#include "quire/connector_registry.h"
#include "quire/engine.h"
#include "quire/transport.h"

namespace quire {

// How a tier is used.
enum class KvTierPolicy : std::uint8_t {
  exact,    // when vLLM's connector would store and load: whatever that takes, and a block that is about to be stored counts as stored
  measured  // a load that takes longer than computing is not begun, blocks are found when they are stored, a store that stands in the way
            // is given up, and at most a quarter of the cache is on its way to the tier
};

// A tier in host memory below the KV cache: for a cache on a device. One in host memory is better made larger itself.
struct KvDramOptions {
  std::uint64_t bytes = 0;              // 0: no tier
  std::string eviction_policy = "lru";  // who goes when it is full: as parse_offload_policy(), or of the registry's
  KvTierPolicy policy = KvTierPolicy::measured;
  // A request loads blocks that another one is loading, too, instead of waiting for these (OffloadConnectorOptions).
  bool join_loads = false;
  std::int64_t store_threshold = 0;        // times that a block is asked for before it is stored; below 2: all are (OffloadOptions)
  std::int64_t max_tracker_size = 64'000;  // names that are counted for that
  EvictionPolicyFactory own_policy = {};   // instead of eviction_policy
};

// A tier on disk below the KV cache (docs/tiers.md): blocks are stored there as they fill, and found again, also by the next process.
struct KvDiskOptions {
  std::string folder = {};              // of one model in one layout, for one process at a time; empty: no tier
  std::uint64_t budget_bytes = 0;       // of everything in the folder; 0: a quarter of what is free there or its own, at most 64 GiB
  std::string eviction_policy = "lru";  // who goes when it is full: as parse_offload_policy(), or of the registry's
  KvTierPolicy policy = KvTierPolicy::measured;
  std::uint64_t bytes_per_second = 0;  // at most, read and written each; 0: as fast as the disk is
  // Beside KvDramOptions: each block is stored in both tiers as it fills. Else, with KvTierPolicy::measured, in host memory alone, and it
  // moves down to the folder as it cools: when it is about to be evicted there.
  bool write_through = false;
  bool join_loads = false;           // as in KvDramOptions
  std::int64_t store_threshold = 0;  // as in KvDramOptions
  std::int64_t max_tracker_size = 64'000;
  EvictionPolicyFactory own_policy = {};  // instead of eviction_policy
};

// A store in the network that several servers share, below the others (docs/tiers.md): Redis, or what speaks as it does. Blocks are stored
// there as they fill; what another server of the same model, options and key has stored is found, too.
struct KvRemoteOptions {
  std::string address = {};        // redis://[user:password@]host[:port][/database], rediss://, unix:///path; empty: no tier
  std::string key_file = {};       // what is stored is signed with these bytes, at least 16; needed unless the store is this machine's
  std::string ca_file = {};        // certificates that a rediss:// store's is checked against; empty: the system's
  std::uint64_t budget_bytes = 0;  // of what this server has stored there and what it remembers of others; 0: 16 GiB
  std::uint64_t ttl_s = 24ULL * 60 * 60;  // what is neither stored nor loaded for so long is forgotten by the store
  KvTierPolicy policy = KvTierPolicy::measured;
  bool join_loads = false;  // as in KvDramOptions
};

// What this server does with the KV blocks of requests that another one began, or goes on with (kv_transfer_params;
// docs/disaggregation.md).
enum class KvRole : std::uint8_t {
  none,
  producer,  // keeps the blocks of prompts that it has computed for others
  consumer,  // loads those that others have computed
  both
};

struct KvPeerOptions {
  KvRole role = KvRole::none;
  // Where a producer listens, and what it tells consumers: an address of this machine under which they reach it.
  std::string host = "127.0.0.1";
  std::uint16_t port = 5600;  // 0: a free one
  // The same bytes on all servers, at least 16: nothing is given to nor taken from who has not got them. Needed unless all are on this
  // machine.
  std::string key_file = {};
  double lease_s = 60.0;  // how long blocks are kept for a consumer that does not come
};

// Blocks by their names between servers of the same model (docs/tiers.md): what this one lacks is asked of others, and loaded where they
// have it and that is faster than computing it. A server that does not answer, or not what it should, has nothing.
struct KvPeerCacheOptions {
  std::vector<std::string> peers = {};  // HOST:PORT of each, 16 at most: who is asked; one that is this very server is left out
  std::string share = {};               // HOST:PORT where this server gives what KvDramOptions hold; empty: nobody is given anything
  std::string key_file = {};            // as in KvPeerOptions
  KvTierPolicy policy = KvTierPolicy::measured;
  bool join_loads = false;  // as in KvDramOptions

  [[nodiscard]] bool is_on() const { return !peers.empty() || !share.empty(); }
};

// Connectors by name, and policies of tiers. Several connectors are one: all store, and a request loads from the first that has something.
// Where there are tiers (KvDramOptions, KvDiskOptions, KvRemoteOptions), these come first, as one.
struct ConnectorChoice {
  std::shared_ptr<ConnectorRegistry> registry = {};  // null: quire's own names
  std::vector<NamedConnector> connectors = {};       // in this order; empty: none
  bool loads_longest = false;                        // from the one that has most, instead
  KvTierPolicy policy = KvTierPolicy::exact;         // of OffloadingConnector
};

// What a builder was given; each may be null. The engine keeps them to its end.
struct EngineSeams {
  std::shared_ptr<Connector> connector = {};
  std::shared_ptr<Transport> transport = {};
  std::shared_ptr<EncoderConnector> encoder_connector = {};
  std::shared_ptr<EventSink> events = {};
  std::shared_ptr<const Clock> clock = {};
  std::shared_ptr<Logger> logger = {};
  KvDramOptions kv_dram = {};
  KvDiskOptions kv_disk = {};
  KvRemoteOptions kv_remote = {};
  KvPeerOptions kv_peer = {};
  KvPeerCacheOptions kv_peer_cache = {};
  ConnectorChoice choice = {};
};

class QUIRE_API EngineBuilder {
 public:
  explicit EngineBuilder(EngineOptions options) : options_(std::move(options)) {}

  // One says what is loaded and stored, the other does it: both are needed. With sliding windows only if it supports_groups(). A request
  // whose blocks could not be loaded computes them, or ends in error (EngineOptions::kv_load_failure): also one that ran on them at once
  // (ExternalMatch::load_async is false), and all that it has computed on them is forgotten. poll() must tell of such a load's end with the
  // step that waited for it.
  EngineBuilder& connector(std::shared_ptr<Connector> connector, std::shared_ptr<Transport> transport) {
    seams_.connector = std::move(connector);
    seams_.transport = std::move(transport);
    return *this;
  }
  // Those of a registry, made when the engine knows its cache. Errors as ConnectorRegistry::create().
  EngineBuilder& connectors(ConnectorChoice choice) {
    seams_.choice = std::move(choice);
    return *this;
  }
  // quire's own connector and transport, to host memory. Where both tiers are given, blocks move from this one down to disk as they cool,
  // and a request loads the parts of its prompt from where they are (KvDiskOptions::write_through: all is stored in both, and it loads from
  // the one that has more). Errors name `kv_dram`: room for no block.
  EngineBuilder& kv_dram(KvDramOptions options) {
    seams_.kv_dram = std::move(options);
    return *this;
  }
  // The same, to a folder. Errors name `kv_disk` or `kv_disk_budget`: a folder of another model or layout, in use, or without rights; a
  // budget without room for a block.
  EngineBuilder& kv_disk(KvDiskOptions options) {
    seams_.kv_disk = std::move(options);
    return *this;
  }
  // The same, to a store in the network. Errors name `kv_remote`, `kv_remote_key`, `kv_remote_ca`, `kv_remote_budget` or `kv_remote_ttl`:
  // an address that is none, a build without its client; a key that is missing or short; no room for a block. A store that is away is none.
  EngineBuilder& kv_remote(KvRemoteOptions options) {
    seams_.kv_remote = std::move(options);
    return *this;
  }
  // Prefill and decode apart: blocks go to, or come from, other servers of the same model. Errors name `kv_role`, `kv_host`, `kv_port`,
  // `kv_key` or `kv_lease`: a cache that cannot be handed on; an address that is not this machine's, or in use; one of another machine
  // without a key.
  EngineBuilder& kv_peer(KvPeerOptions options) {
    seams_.kv_peer = std::move(options);
    return *this;
  }
  // Blocks by their names, of and for others. Errors name `kv_peers`, `kv_share` or `kv_key`: an address that is none, is not this
  // machine's, or is in use; nothing to give (KvDramOptions are needed); another machine without a key. A peer that is away is none.
  EngineBuilder& kv_peer_cache(KvPeerCacheOptions options) {
    seams_.kv_peer_cache = std::move(options);
    return *this;
  }
  // Who holds encoder outputs elsewhere. The model must have an encoder: none that is served yet has.
  EngineBuilder& encoder_connector(std::shared_ptr<EncoderConnector> connector) {
    seams_.encoder_connector = std::move(connector);
    return *this;
  }
  // What the core decides and why, told on the engine's thread.
  EngineBuilder& events(std::shared_ptr<EventSink> sink) {
    seams_.events = std::move(sink);
    return *this;
  }
  // Every time that the engine takes, decides by or reports. It waits in real time, for as long as this one says is left.
  EngineBuilder& clock(std::shared_ptr<const Clock> clock) {
    seams_.clock = std::move(clock);
    return *this;
  }
  // Beginning and end of the engine, requests that failed, transfers that did, steps that the trace lost. Without one it is silent.
  EngineBuilder& logger(std::shared_ptr<Logger> logger) {
    seams_.logger = std::move(logger);
    return *this;
  }

  // Loads the model and starts the engine thread. Progress of the load goes to `progress` (0 to 1), if given. Errors: what the options
  // ask for, the model or the machine lacks; a half of a connector; `unsupported`, and the seam, where nothing would serve what it plans.
  [[nodiscard]] Result<std::unique_ptr<Engine>> build(void (*progress)(double) = nullptr) const;

 private:
  EngineOptions options_;
  EngineSeams seams_;
};

}  // namespace quire
