#pragma once
// Gives access to the blocks of other servers (peers) as a `SharedStore` (shared_store.h). A private thread asks the peers which offload
// keys they hold, loads blocks from the peers and verifies each block (peer_wire.h). The store itself keeps no blocks. Called by the
// engine's threads, which never wait; the private thread runs the callbacks. A lookup is one ask() with its messages to the peers.
//
// States of a peer, and the events that change them:
//   in use    -> paused    its connection is lost or stalls, a block does not verify, or its model or secret differs
//   paused    -> on trial  the first lookup after the pause is sent to the peer, but does not wait for the peer's answer
//   on trial  -> in use    the peer answers
//   on trial  -> paused    the peer does not answer: the pause doubles. The pause also doubles after each corrupted block, until the
//                          peer sends a valid block
//   any       -> self      the peer reports this server's engine id, and is never asked again
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "runtime/remote/peer_server.h"
#include "runtime/remote/peer_wire.h"
#include "runtime/remote/remote_address.h"
#include "runtime/remote/shared_store_counters.h"
#include "runtime/remote/wake_event.h"

namespace quire {

struct PeerCacheOptions {
  std::vector<RemoteAddress> peers;
  std::vector<std::byte> secret;  // empty: all peers are on this machine
  TierFingerprint fingerprint{};
  std::string engine_id;                   // id of this server
  std::uint32_t num_places = 0;            // upper bound of the slot numbers in jobs; the store ignores these numbers
  std::vector<std::uint64_t> group_bytes;  // bytes of a block, by cache group
  // Time limit of a lookup in seconds. Afterwards the lookup ends with the answers received so far.
  double lookup_timeout_s = 0.15;
  // A peer counts as stalled after `timeout_s` without a whole block or another answer, or when it is slower than `min_bytes_per_s`.
  double timeout_s = 1.2, min_bytes_per_s = 4e6;
  double initial_backoff_s = 1.0, max_backoff_s = 60.0;
  double idle_s = 30.0;                                 // idle connections are closed after this time, half of the server's limit
  std::uint32_t max_numbers = std::uint32_t{1} << 31U;  // per connection, so that no sequence number is used twice
};

// Any thread may call the public functions.
class PeerCache final : public SharedStore {
 public:
  // `server` gives this server's blocks to peers and lives as long as this object. Null: this server gives no blocks.
  explicit PeerCache(PeerCacheOptions options, std::unique_ptr<PeerServer> server = nullptr);
  // Cancels all open loads.
  ~PeerCache() override;
  PeerCache(const PeerCache&) = delete;
  PeerCache& operator=(const PeerCache&) = delete;

  [[nodiscard]] std::uint32_t num_places() const override { return options_.num_places; }
  [[nodiscard]] std::uint64_t block_bytes() const override { return block_bytes_; }
  void submit(TierJob job) override;
  // A peer that does not answer in time counts as holding nothing.
  void ask(std::vector<OffloadKey> names, std::function<bool()> is_wanted, std::function<void(const Answer&)> over) override;
  void forget(const OffloadKey& /*name*/) override {}
  void mark_untrusted(const OffloadKey& name) override;
  void probe_loads() override;
  [[nodiscard]] bool is_probing() const override { return count_.is_probing(); }
  [[nodiscard]] TierService service() const override { return {.loads = !options_.peers.empty(), .stores = false}; }
  // `num_stored` and `bytes_stored` count the blocks that were sent to other servers.
  [[nodiscard]] SharedStoreStats stats() const override;
  [[nodiscard]] std::string last_problem() const override;

  [[nodiscard]] PeerServer* server() const { return server_.get(); }

 private:
  using TimePoint = std::chrono::steady_clock::time_point;
  struct KeyHash {
    std::size_t operator()(const OffloadKey& name) const { return name.prefix() ^ name.group; }
  };
  using Holders = std::unordered_map<OffloadKey, std::size_t, KeyHash>;
  struct Lookup;
  struct Load;
  struct Peer;

  void run();
  void take_lookups(TimePoint now);
  void begin(const std::shared_ptr<Lookup>& question, TimePoint now);
  void route(Load load, TimePoint now);
  void send_requests(Peer& peer, TimePoint now);
  void wait();
  void advance(Peer& peer);
  bool handle_found(Peer& peer, const PeerFrame& frame);
  bool handle_block(Peer& peer, const PeerFrame& frame);
  void handle_welcome(Peer& peer, const std::string& engine_id);
  void check_timeouts(Peer& peer, TimePoint now);
  // Closes the connections to the peer and pauses it. `of_first` is the outcome of the load that the peer was answering; `refused` if a
  // block did not verify. All other loads from the peer fail.
  void pause(Peer& peer, std::string_view why, TierOutcome of_first = TierOutcome::failed);
  void drop(Peer& peer, TierOutcome first, TierOutcome rest);
  void count_answer(const std::shared_ptr<Lookup>& question);
  void finish(const std::shared_ptr<Lookup>& question);
  void record_holder(const OffloadKey& name, std::size_t peer);
  [[nodiscard]] Peer* holder_of(const OffloadKey& name);
  [[nodiscard]] bool is_untrusted(const OffloadKey& name) const;
  void end(const Load& load, TierOutcome outcome);

  const PeerCacheOptions options_;
  const std::uint64_t block_bytes_;
  const std::unique_ptr<PeerServer> server_;
  const WakeEvent wake_;
  SharedStoreCounters count_;

  // Used only on the private thread.
  PeerFrameCodec codec_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<std::shared_ptr<Lookup>> open_;  // ordered by deadline
  // The peer that holds each block, by offload key, from recent answers. The two maps have at least the last `num_places` keys and at most
  // twice as many.
  Holders holders_, previous_holders_;

  mutable std::mutex mutex_;
  // `mutex_` guards all members below.
  std::vector<std::shared_ptr<Lookup>> queried_;
  std::vector<Load> submitted_;
  std::string problem_;
  std::unordered_set<OffloadKey, KeyHash> untrusted_;
  bool stops_ = false;
  std::thread thread_;
};

}  // namespace quire
