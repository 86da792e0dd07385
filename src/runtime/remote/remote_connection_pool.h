#pragma once
// Sends commands to a store on a private thread, over a few connections with several commands in flight each. Follows the redirects of a
// Redis Cluster. Commands with the same key use one connection and keep their order.
//
// Stages of a command, and the queue that holds the command:
//   submit()                                                        `submitted_`, then `jobs_`
//   -> start_one(): a connection is chosen, the words are written   `sent` of that connection
//   -> a reply, or the loss of the connection: over()
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/cpu_share.h"
#include "runtime/remote/remote_connection.h"
#include "runtime/remote/wake_event.h"

namespace quire {

struct RemoteCommand {
  std::string key;  // selects the server of a cluster, and the connection
  // Writes the words of the command. Called on the pool's thread when the command is sent, and again after a redirect. Returns false if the
  // caller no longer needs the command.
  std::function<bool(std::vector<std::string>& words)> write;
  // Called once, on the pool's thread. Must neither throw nor destroy the pool.
  std::function<void(const RemoteReply& reply)> over;
};

struct RemoteConnectionPoolOptions {
  RemoteAddress address;
  std::shared_ptr<const NetTls> tls;
  std::uint32_t num_connections = 2;  // per server
  std::uint32_t depth = 4;            // commands in flight per connection
  double timeout_s = 2.0;             // longest time without a reply while a connection awaits replies
  std::uint64_t max_reply_bytes = 0;
  bool yields_cores = false;  // the thread uses little time of cores that other threads need (base/cpu_share.h)
};

class RemoteConnectionPool {
 public:
  explicit RemoteConnectionPool(RemoteConnectionPoolOptions options);
  // Ends open commands as `lost`.
  ~RemoteConnectionPool();
  RemoteConnectionPool(const RemoteConnectionPool&) = delete;
  RemoteConnectionPool& operator=(const RemoteConnectionPool&) = delete;

  // May be called on any thread; returns immediately.
  void submit(RemoteCommand command);
  // Returns the reason for the last loss of a connection, or the store's last error; empty if there was no problem. May be called on any
  // thread.
  [[nodiscard]] std::string last_problem() const;

 private:
  using SteadyClock = std::chrono::steady_clock;
  struct Job {
    RemoteCommand command;
    std::uint32_t num_redirects = 0;
    bool is_asking = false;           // set by an ASK redirect, which redirects this command only
    std::optional<std::size_t> node;  // nullopt: the server of the key's cluster slot
  };
  struct Link {
    std::unique_ptr<RemoteConnection> connection = {};  // null until a command needs the connection
    std::deque<Job> sent = {};
    SteadyClock::time_point since = {};  // time of the last reply, or when the first command of `sent` was sent
  };
  struct Node {
    RemoteAddress address;
    std::vector<Link> links;
  };

  void run();
  void take_submitted();
  bool start_pending(CpuShare* share, std::chrono::milliseconds& rest);
  bool start_one(Job& job);
  void wait(std::chrono::milliseconds rest);
  void advance(std::size_t node, Link& link);
  void take(std::size_t node, Link& link, const RemoteReply& reply);
  bool follow_redirect(std::size_t node, Job& job, std::string_view error);
  std::optional<std::size_t> node_at(std::size_t node, std::string_view where);
  void check_timeout(Link& link, SteadyClock::time_point now);
  void lose(Link& link, const std::string& why, bool all);
  void note(std::string problem);
  void end_all();

  const RemoteConnectionPoolOptions options_;
  const WakeEvent wake_;

  // Used only on the pool's thread.
  std::deque<Job> jobs_;
  std::vector<std::unique_ptr<Node>> nodes_;  // the first is the configured server
  std::vector<std::uint16_t> node_of_slot_;   // index into `nodes_` by cluster slot; empty before the first redirect
  std::vector<std::string> words_;

  mutable std::mutex mutex_;
  // `mutex_` guards all members below.
  std::deque<Job> submitted_;
  std::string problem_;
  bool stops_ = false;

  std::thread thread_;
};

// Returns the Redis Cluster slot of a key: its CRC-16 (XMODEM) modulo 16,384. If the key has a hash tag (at least one byte between the
// first '{' and the next '}'), only the tag is hashed.
std::uint16_t cluster_slot_of(std::string_view key);

}  // namespace quire
