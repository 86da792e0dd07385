#pragma once
// Builds an engine from options and, if given, the caller's connectors, sinks, clock and logger:
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
#include "quire/base/kv_role.h"
#include "quire/base/logger.h"
#include "quire/base/options.h"
#include "quire/connector.h"
#include "quire/connector_registry.h"
#include "quire/engine.h"
#include "quire/transport.h"

namespace quire {

// How a tier decides which blocks to store and to load.
enum class KvTierPolicy : std::uint8_t {
  // Stores and loads exactly when vLLM's connector would, whatever the cost. A block counts as stored before its store is over.
  exact,
  // Begins no load that takes longer than computing its tokens, and finds a block only after its store is over. Drops a store that delays a
  // step. At most a quarter of the cache is in transfer to the tier at one time.
  measured
};

// Options of a tier in host memory, for a KV cache on a device. If the KV cache itself is in host memory, make the KV cache larger instead.
struct KvDramOptions {
  std::uint64_t bytes = 0;              // 0: no tier
  std::string eviction_policy = "lru";  // a name that parse_offload_policy() or the registry knows
  KvTierPolicy policy = KvTierPolicy::measured;
  // Makes a request also load blocks that are being loaded for another request, instead of waiting for them (OffloadConnectorOptions).
  bool join_loads = false;
  std::int64_t store_threshold = 0;          // lookups of a block before it is stored; below 2: every block is stored (OffloadOptions)
  std::int64_t max_tracker_size = 64'000;    // block hashes counted for store_threshold
  EvictionPolicyFactory custom_policy = {};  // instead of eviction_policy
};

// Options of a tier on disk (docs/tiers.md). Blocks are stored as they fill, and later processes also find them.
struct KvDiskOptions {
  std::string folder = {};  // folder for one model, one layout and one process at a time; empty: no tier
  // Limit for the whole folder. 0: a quarter of the space that is free or already used by the folder, at most 64 GiB.
  std::uint64_t budget_bytes = 0;
  std::string eviction_policy = "lru";  // a name that parse_offload_policy() or the registry knows
  KvTierPolicy policy = KvTierPolicy::measured;
  std::uint64_t bytes_per_second = 0;  // limit of the read rate, and of the write rate; 0: no limit
  // Used together with KvDramOptions. true: each block is stored in both tiers as it fills. false, with KvTierPolicy::measured: each block
  // is stored in host memory only, and moves to the folder when host memory is about to evict it.
  bool write_through = false;
  bool join_loads = false;           // see KvDramOptions
  std::int64_t store_threshold = 0;  // see KvDramOptions
  std::int64_t max_tracker_size = 64'000;
  EvictionPolicyFactory custom_policy = {};  // instead of eviction_policy
};

// Options of a network store that servers share, below the other tiers (docs/tiers.md): Redis or a compatible server. Blocks are stored as
// they fill. A server also finds blocks that other servers with the same model, options and key have stored.
struct KvRemoteOptions {
  std::string address = {};               // redis://[user:password@]host[:port][/database], rediss://, unix:///path; empty: no tier
  std::string key_file = {};              // signing key for stored blocks, at least 16 bytes; required unless the store is on this machine
  std::string ca_file = {};               // CA certificates for the store's certificate (rediss://); empty: the system's certificates
  std::uint64_t budget_bytes = 0;         // limit for blocks that this server stored or found in the store; 0: 16 GiB
  std::uint64_t ttl_s = 24ULL * 60 * 60;  // seconds without a store or load after which the store removes a block
  KvTierPolicy policy = KvTierPolicy::measured;
  bool join_loads = false;  // see KvDramOptions
};

// Options of disaggregated prefill, where prefill and decode run on different servers. `role` enables them.
struct KvPeerOptions {
  KvRole role = KvRole::none;
  // Address on which a producer listens, and which it reports to consumers. It must be an address of this machine that consumers can reach.
  std::string host = "127.0.0.1";
  std::uint16_t port = 5600;  // 0: any free port
  // Key file of at least 16 bytes, with the same content on all servers. A server exchanges blocks only with servers that prove that they
  // have the key. Required unless all servers are on this machine.
  std::string key_file = {};
  double lease_s = 60.0;  // how long blocks are kept for a consumer, in seconds
  // Servers from which a consumer may load: HOST:PORT as in their `host` and `port`, or HOST alone for any port; at most 1024 entries. A
  // request that names another server is rejected, and nothing is sent to that server. Empty: every request that names a server is
  // rejected.
  std::vector<std::string> producers = {};
};

// Options of block exchange by block hash between servers of the same model (docs/tiers.md). A server looks up missing blocks on other
// servers, and loads them if that is faster than computing them. A server that does not answer, or answers wrongly, counts as having no
// blocks.
struct KvPeerCacheOptions {
  std::vector<std::string> peers = {};  // HOST:PORT of each server to query, at most 16 entries; an entry for this server itself is skipped
  std::string share = {};               // HOST:PORT where this server offers the blocks of its KvDramOptions tier; empty: none are offered
  std::string key_file = {};            // see KvPeerOptions
  KvTierPolicy policy = KvTierPolicy::measured;
  bool join_loads = false;  // see KvDramOptions

  [[nodiscard]] bool is_on() const { return !peers.empty() || !share.empty(); }
};

// Connectors by name, and the policy of their tiers. Several connectors act as one: each of them stores, and a request loads from the first
// connector that has blocks for it. The tiers (KvDramOptions, KvDiskOptions, KvRemoteOptions) come first, as one connector.
struct ConnectorChoice {
  std::shared_ptr<ConnectorRegistry> registry = {};  // null: quire's own names only
  std::vector<NamedConnector> connectors = {};       // in this order; empty: none
  bool prefers_longest_match = false;                // load from the connector that has the most blocks instead
  KvTierPolicy policy = KvTierPolicy::exact;         // policy of OffloadingConnector
};

// The parts given to a builder; each may be null. The engine keeps them alive until it ends.
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

// Collects the parts of an engine and builds the engine. Used by one thread.
class QUIRE_API EngineBuilder {
 public:
  explicit EngineBuilder(EngineOptions options) : options_(std::move(options)) {}

  // Sets a connector, which decides what is loaded and stored, and the transport that moves the blocks. Both are required. Models with
  // sliding windows need a connector with supports_groups(). If a load fails, its request is recomputed or ends with an error
  // (EngineOptions::kv_load_failure). This also applies to a request that ran without waiting for its load (ExternalMatch::load_async is
  // false): all tokens computed from these blocks are dropped. poll() must report the end of such a load in the step that waited for it.
  EngineBuilder& connector(std::shared_ptr<Connector> connector, std::shared_ptr<Transport> transport) {
    seams_.connector = std::move(connector);
    seams_.transport = std::move(transport);
    return *this;
  }
  // Sets connectors of a registry, by name. They are created when the engine knows the layout of its cache. Errors: see
  // ConnectorRegistry::create().
  EngineBuilder& connectors(ConnectorChoice choice) {
    seams_.choice = std::move(choice);
    return *this;
  }
  // Adds the tier in host memory, with quire's own connector and transport. If there is also a disk tier, host memory moves blocks to disk
  // when it is about to evict them, and a request loads each part of its prompt from the tier that has it. With
  // KvDiskOptions::write_through, both tiers store every block, and a request loads from the tier that has more. Errors name `kv_dram`: no
  // room for a block.
  EngineBuilder& kv_dram(KvDramOptions options) {
    seams_.kv_dram = std::move(options);
    return *this;
  }
  // Adds the tier on disk. Errors name `kv_disk` or `kv_disk_budget`: the folder belongs to another model or layout, is in use, or has
  // wrong permissions; the budget has no room for a block.
  EngineBuilder& kv_disk(KvDiskOptions options) {
    seams_.kv_disk = std::move(options);
    return *this;
  }
  // Adds the tier in a network store. Errors name `kv_remote`, `kv_remote_key`, `kv_remote_ca`, `kv_remote_budget` or `kv_remote_ttl`: the
  // address is invalid; this build has no client; the key is missing or short; no room for a block. An unreachable store is no error.
  EngineBuilder& kv_remote(KvRemoteOptions options) {
    seams_.kv_remote = std::move(options);
    return *this;
  }
  // Exchanges blocks with prefill or decode servers of the same model. Errors name `kv_role`, `kv_host`, `kv_port`, `kv_key`, `kv_lease` or
  // `kv_producers`: the cache cannot be transferred; the address is not on this machine, or in use; an address on another machine needs a
  // key.
  EngineBuilder& kv_peer(KvPeerOptions options) {
    seams_.kv_peer = std::move(options);
    return *this;
  }
  // Exchanges blocks by block hash with other servers. Errors name `kv_peers`, `kv_share` or `kv_key`: the address is invalid, not on this
  // machine, or in use; KvDramOptions are missing; another machine needs a key. An unreachable peer is no error.
  EngineBuilder& kv_peer_cache(KvPeerCacheOptions options) {
    seams_.kv_peer_cache = std::move(options);
    return *this;
  }
  // Sets an external store for encoder outputs. build() fails if the worker runs no encoder.
  EngineBuilder& encoder_connector(std::shared_ptr<EncoderConnector> connector) {
    seams_.encoder_connector = std::move(connector);
    return *this;
  }
  // Sets a sink that receives the core's decisions and their causes, on the engine thread.
  EngineBuilder& events(std::shared_ptr<EventSink> sink) {
    seams_.events = std::move(sink);
    return *this;
  }
  // Sets the clock for all times that the engine measures, reports or bases decisions on. When the engine waits until a time of this clock,
  // it waits for the remaining time in real time.
  EngineBuilder& clock(std::shared_ptr<const Clock> clock) {
    seams_.clock = std::move(clock);
    return *this;
  }
  // Sets a logger for the start and end of the engine, failed requests, failed transfers and lost trace steps. Without a logger nothing is
  // logged.
  EngineBuilder& logger(std::shared_ptr<Logger> logger) {
    seams_.logger = std::move(logger);
    return *this;
  }

  // Loads the model and starts the engine thread. `progress`, if given, receives the progress of loading from 0 to 1. Errors: the model or
  // the machine does not support an option; only one of connector and transport is given; `unsupported`: the model or the worker does not
  // support the connector.
  [[nodiscard]] Result<std::unique_ptr<Engine>> build(void (*progress)(double) = nullptr) const;

 private:
  EngineOptions options_;
  EngineSeams seams_;
};

}  // namespace quire
