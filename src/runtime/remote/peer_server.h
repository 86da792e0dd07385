#pragma once
// The side that gives blocks to other servers, by a thread of its own (peer_wire.h). By name, those of a shelf (peer_shelf.h), to whoever
// has the key; and by leases, each of the blocks of a request that has ended here, to who asks for them. The bytes of these stay where they
// are, in the KV cache, and are copied when they are sent.
//
// States of a lease, and who moves it on:
//   (none)    -> promised  promise(): its request has ended, and who is told of it may ask at once
//   promised  -> kept      keep(), of its last block: a plan has been made that says so
//   any       -> over      the consumer has said so; its time is over; end(); the server goes: each block's `over` is called
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "quire/base/error.h"
#include "runtime/remote/peer_link.h"
#include "runtime/remote/peer_shelf.h"
#include "runtime/remote/peer_wire.h"
#include "runtime/remote/wake_up.h"
#include "runtime/tier/block_store.h"

namespace quire {

struct PeerServerOptions {
  std::string host;  // an address of this machine
  std::uint16_t port = 0;
  std::vector<std::byte> secret;  // empty: anybody can ask
  TierFingerprint fingerprint{};
  std::string engine_id;
  double lease_s = 60.0;
  std::shared_ptr<PeerShelf> shelf = {};  // null: nothing is given by name
  double patience_s = 5.0;                // with a consumer that neither takes what is sent nor says anything
};

// From the start.
struct PeerServerStats {
  std::uint32_t num_open_leases = 0;
  std::uint64_t num_leases = 0, num_expired_leases = 0;
  std::uint64_t num_sent = 0, bytes_sent = 0;  // blocks
  std::uint64_t num_refused = 0;               // connections that asked for nothing that they may have
};

// All but the destructor from any thread; none of them waits.
class PeerServer {
 public:
  // Errors: `kv_host`, `kv_port`.
  static Result<std::unique_ptr<PeerServer>> open(PeerServerOptions options);
  ~PeerServer();
  PeerServer(const PeerServer&) = delete;
  PeerServer& operator=(const PeerServer&) = delete;

  [[nodiscard]] std::uint16_t port() const { return port_; }

  // A block that is given before it is kept: the bytes are there, and whoever promises it knows until when.
  struct Block {
    OffloadKey name;
    std::uint32_t bytes = 0;
    std::function<bool(std::span<std::byte> bytes)> copy;
  };
  // `ticket` is the caller's name for it, used once; `request_id` that of consumers. Copies are made by the server's thread, until keep()
  // or end() returns.
  void promise(std::uint64_t ticket, std::string request_id, std::vector<Block> blocks);
  // Its copy() is called from then on, as often as the block is asked for. Of a lease that is over it is over at once.
  void keep(std::uint64_t ticket, std::uint32_t index, TierJob job);
  // No block of it is copied any more when it returns.
  void end(std::uint64_t ticket);
  // Nobody new will come here: no lease, begun or to begin, lasts longer than so from now on.
  void hurry(double seconds);

  [[nodiscard]] PeerServerStats stats() const;

 private:
  struct Lease;
  struct Client;
  using TimePoint = std::chrono::steady_clock::time_point;

  PeerServer(PeerServerOptions options, int listener, std::uint16_t port);
  void run();
  void wait();
  void accept_some();
  bool serve(Client& client);
  void send_next(Client& client);
  bool take_frame(Client& client, const PeerFrame& frame);
  bool greet(Client& client, const PeerFrame& frame);
  bool answer(Client& client, const PeerFrame& frame);
  bool answer_names(Client& client, const PeerFrame& frame);
  void send_taken(Client& client);
  bool refuse(Client& client, PeerEnd end);
  void end_leases(bool all);
  void finish(const std::shared_ptr<Lease>& lease);

  const PeerServerOptions options_;
  const int listener_;
  const WakeUp wake_;
  const std::uint16_t port_;
  PeerSeal seal_;                                 // the thread's
  std::vector<std::unique_ptr<Client>> clients_;  // the same
  bool cannot_accept_ = false;                    // the same
  std::atomic<std::uint64_t> num_refused_ = 0;

  mutable std::mutex mutex_;
  // Guarded by mutex_, as all that follows.
  std::unordered_map<std::uint64_t, std::shared_ptr<Lease>> leases_;  // by ticket
  std::unordered_map<std::string, std::uint64_t> tickets_;            // by the request's name
  std::vector<TierJob> late_;                                         // that came when their lease was over
  std::chrono::steady_clock::duration longest_;
  PeerServerStats stats_;
  bool stops_ = false;
  std::thread thread_;
};

}  // namespace quire
