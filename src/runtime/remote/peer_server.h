#pragma once
// Serves blocks to other servers, on a private thread (peer_wire.h). Clients with the secret get blocks of a `PeerBlockSource` by offload
// key (peer_block_source.h). The blocks of a request that has ended here are kept by a lease, until the consumer of the request has fetched
// the blocks. The bytes of a leased block stay in the KV cache and are copied when the block is sent.
//
// States of a lease, and the events that change them:
//   (none)    -> promised  open_lease(): the request has ended; a notified consumer may ask immediately
//   promised  -> kept      keep() of the last block: a plan with the stores of the blocks has been made
//   any       -> over      the consumer is done, the lease expires, end(), or the destructor: each block's `over` is called
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
#include "runtime/remote/peer_block_source.h"
#include "runtime/remote/peer_frame_stream.h"
#include "runtime/remote/peer_wire.h"
#include "runtime/remote/wake_event.h"
#include "runtime/tier/block_store.h"

namespace quire {

struct PeerServerOptions {
  std::string host;  // address of this machine to listen on
  std::uint16_t port = 0;
  std::vector<std::byte> secret;  // empty: any client may ask
  TierFingerprint fingerprint{};
  std::string engine_id;
  double lease_s = 60.0;
  std::shared_ptr<PeerBlockSource> block_source = {};  // null: no blocks are given by offload key
  double timeout_s = 5.0;                              // time limit for a consumer that neither reads nor sends
  double handshake_s = 2.0;                            // time limit from the connection to the first request with the right secret
};

// Totals since the start, except `num_open_leases`.
struct PeerServerStats {
  std::uint32_t num_open_leases = 0;
  std::uint64_t num_leases = 0, num_expired_leases = 0;
  std::uint64_t num_sent = 0, bytes_sent = 0;  // blocks and their bytes
  std::uint64_t num_refused = 0;               // connections that were refused
  std::uint64_t num_evicted_clients = 0;       // unverified connections that were closed for new ones
};

// Any thread may call the functions, except the destructor. No function waits for the network.
class PeerServer {
 public:
  // Starts to listen. Errors name `kv_host` or `kv_port`: the server cannot listen at this address.
  static Result<std::unique_ptr<PeerServer>> open(PeerServerOptions options);
  ~PeerServer();
  PeerServer(const PeerServer&) = delete;
  PeerServer& operator=(const PeerServer&) = delete;

  [[nodiscard]] std::uint16_t port() const { return port_; }

  // A block that can be sent before keep(). The caller of open_lease() ensures that the bytes stay valid until keep() or end() returns.
  struct Block {
    OffloadKey name;
    std::uint32_t bytes = 0;
    std::function<bool(std::span<std::byte> bytes)> copy;
  };
  // Opens the lease of a request's blocks. `ticket` is the caller's id of the lease; each ticket is used once. Consumers name the lease by
  // `request_id`. The server's thread may call the blocks' copy() until keep() or end() returns.
  void open_lease(std::uint64_t ticket, std::string request_id, std::vector<Block> blocks);
  // Passes the store job of a block. From now on the server calls the job's copy() each time the block is requested. If the lease is over,
  // the job soon ends as cancelled.
  void keep(std::uint64_t ticket, std::uint32_t index, TierJob job);
  // Ends the lease. The server copies no block of the lease after this function has returned.
  void end(std::uint64_t ticket);
  // Limits the remaining time of all leases, and the time of new leases, to `seconds`. For a server that gets no new consumers.
  void expire_leases(double seconds);

  [[nodiscard]] PeerServerStats stats() const;

 private:
  struct Lease;
  struct Client;
  using TimePoint = std::chrono::steady_clock::time_point;

  PeerServer(PeerServerOptions options, int listener, std::uint16_t port);
  void run();
  void wait();
  void accept_some();
  bool make_room();
  bool serve(Client& client);
  void send_next(Client& client);
  bool take_frame(Client& client, const PeerFrame& frame);
  bool handle_hello(Client& client, const PeerFrame& frame);
  bool answer(Client& client, const PeerFrame& frame);
  bool handle_keys(Client& client, const PeerFrame& frame);
  void send_requested_blocks(Client& client);
  bool refuse(Client& client, PeerCloseReason reason);
  void end_leases(bool all);
  void finish(const std::shared_ptr<Lease>& lease);

  const PeerServerOptions options_;
  const int listener_;
  const WakeEvent wake_;
  const std::uint16_t port_;
  PeerFrameCodec codec_;                          // used only on the thread
  std::vector<std::unique_ptr<Client>> clients_;  // used only on the thread
  bool is_out_of_descriptors_ = false;            // used only on the thread
  std::atomic<std::uint64_t> num_refused_ = 0, num_evicted_clients_ = 0;

  mutable std::mutex mutex_;
  // `mutex_` guards all members below.
  std::unordered_map<std::uint64_t, std::shared_ptr<Lease>> leases_;  // by ticket
  std::unordered_map<std::string, std::uint64_t> tickets_;            // by request id
  std::vector<TierJob> late_jobs_;                                    // jobs that arrived after their lease was over
  std::chrono::steady_clock::duration longest_;
  PeerServerStats stats_;
  bool stops_ = false;
  std::thread thread_;
};

}  // namespace quire
