#pragma once
// What other servers hold as a store (shared_store.h): it asks them, by a thread of its own, which of the names they have, and takes blocks
// from them, each verified (peer_wire.h). It stores nothing. Called by the engine's threads, which never wait for it; what is over is told
// by its thread.
//
// States of a peer, and who moves it between them:
//   in use    -> paused    its connection is lost or stalls, it lies, is of another model, or has another key
//   paused    -> on trial  a question, when its pause is over: it is sent, and nobody waits for the answer
//   on trial  -> in use    it answers
//   on trial  -> paused    it does not: for twice as long
//   any       -> oneself   it says that it is this very server: it is not asked again
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
#include "runtime/remote/shared_store_count.h"
#include "runtime/remote/wake_up.h"

namespace quire {

struct PeerCacheOptions {
  std::vector<RemoteAddress> peers;
  std::vector<std::byte> secret;  // empty: they are all on this machine
  TierFingerprint fingerprint{};
  std::string engine_id;                   // this server's
  std::uint32_t num_places = 0;            // numbers that jobs may carry: they mean nothing here
  std::vector<std::uint64_t> group_bytes;  // of a block, by cache group
  // A question is over by then, with what has been answered.
  double answer_s = 0.15;
  // Without a whole block, or another answer; and slower than so many bytes per second it is as good as stalled.
  double patience_s = 1.2, least_bytes_per_s = 4e6;
  double first_pause_s = 1.0, longest_pause_s = 60.0;
};

// Any thread.
class PeerCache final : public SharedStore {
 public:
  // `server`: gives this server's own blocks; it lives as long. Null: none are given.
  explicit PeerCache(PeerCacheOptions options, std::unique_ptr<PeerServer> server = nullptr);
  // What is not over is given up.
  ~PeerCache() override;
  PeerCache(const PeerCache&) = delete;
  PeerCache& operator=(const PeerCache&) = delete;

  [[nodiscard]] std::uint32_t num_places() const override { return options_.num_places; }
  [[nodiscard]] std::uint64_t block_bytes() const override { return block_bytes_; }
  void submit(TierJob job) override;
  // Also of peers that have said nothing in time: they have nothing.
  void ask(std::vector<OffloadKey> names, std::function<bool()> is_wanted, std::function<void(const Answer&)> over) override;
  void forget(const OffloadKey& /*name*/) override {}
  void forbid(const OffloadKey& name) override;
  void try_loads() override;
  [[nodiscard]] bool is_trying() const override { return count_.is_trying(); }
  [[nodiscard]] TierService service() const override { return {.loads = !options_.peers.empty(), .stores = false}; }
  // What is stored is what was given to others.
  [[nodiscard]] SharedStoreStats stats() const override;
  [[nodiscard]] std::string last_problem() const override;

  [[nodiscard]] PeerServer* server() const { return server_.get(); }

 private:
  using TimePoint = std::chrono::steady_clock::time_point;
  struct NameHash {
    std::size_t operator()(const OffloadKey& name) const { return name.prefix() ^ name.group; }
  };
  using Holders = std::unordered_map<OffloadKey, std::size_t, NameHash>;
  struct Question;
  struct Load;
  struct Peer;

  void run();
  void take_asked(TimePoint now);
  void begin(const std::shared_ptr<Question>& question, TimePoint now);
  void route(Load load, TimePoint now);
  void say(Peer& peer, TimePoint now);
  void wait();
  void go_on(Peer& peer);
  bool hear_found(Peer& peer, const PeerFrame& frame);
  bool hear_block(Peer& peer, const PeerFrame& frame);
  void welcome(Peer& peer, const std::string& engine_id);
  void look_at_clock(Peer& peer, TimePoint now);
  void pause(Peer& peer, std::string_view why);
  void drop(Peer& peer, TierOutcome first, TierOutcome rest);
  void answered(const std::shared_ptr<Question>& question);
  void finish(const std::shared_ptr<Question>& question);
  void remember(const OffloadKey& name, std::size_t peer);
  [[nodiscard]] Peer* holder_of(const OffloadKey& name);
  [[nodiscard]] bool is_forbidden(const OffloadKey& name) const;
  void end(const Load& load, TierOutcome outcome);

  const PeerCacheOptions options_;
  const std::uint64_t block_bytes_;
  const std::unique_ptr<PeerServer> server_;
  const WakeUp wake_;
  SharedStoreCount count_;

  // The thread's.
  PeerSeal seal_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<std::shared_ptr<Question>> open_;  // in the order of their ends
  // Who has what, as far as was told lately: of num_places names at least, and of twice as many at most.
  Holders holders_, older_holders_;

  mutable std::mutex mutex_;
  // Guarded by mutex_, as all that follows.
  std::vector<std::shared_ptr<Question>> asked_;
  std::vector<Load> submitted_;
  std::string problem_;
  std::unordered_set<OffloadKey, NameHash> forbidden_;
  bool stops_ = false;
  std::thread thread_;
};

}  // namespace quire
