#pragma once
// A thread that speaks with a store over a few connections, some commands at a time on each; to a Redis Cluster it goes where it is sent.
// Commands of one key go over one connection, in their order.
//
// A command's way, and where it is meanwhile:
//   submit() -> jobs_
//   -> begin(): a connection is chosen, its words are made    that connection's `sent`
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

#include "base/core_share.h"
#include "runtime/remote/remote_connection.h"
#include "runtime/remote/wake_up.h"

namespace quire {

struct RemoteCommand {
  std::string key;  // says which server of a cluster has it, and which connection takes it
  // Called when it is sent, by the line's thread, and again if it is sent to another server. false: nobody wants it any more.
  std::function<bool(std::vector<std::string>& words)> write;
  // Once, by the line's thread, or by who ends the line. It must not throw, nor end the line.
  std::function<void(const RemoteReply& reply)> over;
};

struct RemoteLineOptions {
  RemoteAddress address;
  std::shared_ptr<const NetTls> tls;
  std::uint32_t num_connections = 2;  // to each server
  std::uint32_t depth = 4;            // commands under way on each
  double patience_s = 2.0;            // without a reply on a connection where one is waited for
  std::uint64_t max_reply_bytes = 0;
  bool gives_way = false;  // commands begin only with a share of cores that others want (base/core_share.h)
};

class RemoteLine {
 public:
  explicit RemoteLine(RemoteLineOptions options);
  // What is not over is lost.
  ~RemoteLine();
  RemoteLine(const RemoteLine&) = delete;
  RemoteLine& operator=(const RemoteLine&) = delete;

  // Any thread; returns at once.
  void submit(RemoteCommand command);
  // Why a connection was lost last, or what error the store gave; empty: nothing was wrong. Any thread.
  [[nodiscard]] std::string last_problem() const;

 private:
  using SteadyClock = std::chrono::steady_clock;
  struct Job {
    RemoteCommand command;
    std::uint32_t num_hops = 0;
    bool is_asking = false;           // ASK: to this server, this once
    std::optional<std::size_t> node;  // nullopt: as the slot says
  };
  struct Link {
    std::unique_ptr<RemoteConnection> connection = {};  // null: none until a command needs one
    std::deque<Job> sent = {};
    SteadyClock::time_point since = {};  // of the last reply, or when the first of these was sent
  };
  struct Node {
    RemoteAddress address;
    std::vector<Link> links;
  };

  void run();
  void take_submitted();
  bool begin_some(CoreShare* share, std::chrono::milliseconds& rest);
  bool begin_one(Job& job);
  void wait(std::chrono::milliseconds rest);
  void go_on(std::size_t node, Link& link);
  void take(std::size_t node, Link& link, const RemoteReply& reply);
  bool send_elsewhere(std::size_t node, Job& job, std::string_view error);
  std::optional<std::size_t> node_at(std::size_t node, std::string_view where);
  void check_patience(Link& link, SteadyClock::time_point now);
  void lose(Link& link, const std::string& why, bool all);
  void note(std::string problem);
  void end_all();

  const RemoteLineOptions options_;
  const WakeUp wake_;

  // The thread's own.
  std::deque<Job> jobs_;
  std::vector<std::unique_ptr<Node>> nodes_;  // the first is the one that was given
  std::vector<std::uint16_t> node_of_slot_;   // of a cluster; empty: it has not sent us anywhere
  std::vector<std::string> words_;

  mutable std::mutex mutex_;
  // Guarded by mutex_, as all that follows.
  std::deque<Job> submitted_;
  std::string problem_;
  bool stops_ = false;

  std::thread thread_;
};

// Of Redis Cluster: CRC-16 (XMODEM) of the key, or of what stands between its first braces, below 16,384.
std::uint16_t cluster_slot_of(std::string_view key);

}  // namespace quire
