#pragma once
// Relays the messages between two servers, with one fault.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace quire::test {

enum class RelayFault : std::uint8_t { none, flips, cuts, stalls };

class PeerRelay {
 public:
  // The fault happens on each connection after this many bytes from the server.
  explicit PeerRelay(std::uint16_t to) : to_(to), listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = loopback(0);
    bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address);
    listen(listener_, 16);
    socklen_t size = sizeof address;
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  ~PeerRelay() {
    stops_ = true;
    thread_.join();
    close(listener_);
  }
  PeerRelay(const PeerRelay&) = delete;
  PeerRelay& operator=(const PeerRelay&) = delete;

  [[nodiscard]] std::uint16_t port() const { return port_; }
  std::atomic<RelayFault> fault = RelayFault::none;
  std::atomic<std::uint64_t> at = 0;
  std::atomic<std::uint32_t> num_connections = 0;

 private:
  struct Pair {
    int client, server;
    std::uint64_t num_back = 0;
    bool is_over = false, is_stalled = false;
  };

  static sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    return address;
  }
  void run() {
    std::vector<Pair> pairs;
    while (!stops_) {
      std::vector<pollfd> polled = {{.fd = listener_, .events = POLLIN, .revents = 0}};
      for (const Pair& pair : pairs) {
        polled.push_back({.fd = pair.client, .events = POLLIN, .revents = 0});
        polled.push_back({.fd = pair.is_stalled ? -1 : pair.server, .events = POLLIN, .revents = 0});
      }
      poll(polled.data(), polled.size(), 5);
      for (std::size_t i = 0; i < pairs.size(); ++i) {
        if (polled[1 + 2 * i].revents != 0) pass(pairs[i], true);
        if (polled[2 + 2 * i].revents != 0 && !pairs[i].is_over) pass(pairs[i], false);
      }
      if (polled[0].revents != 0) accept_one(pairs);
      std::erase_if(pairs, [](const Pair& pair) {
        if (pair.is_over) close(pair.client), close(pair.server);
        return pair.is_over;
      });
    }
    for (const Pair& pair : pairs) close(pair.client), close(pair.server);
  }
  void accept_one(std::vector<Pair>& pairs) {
    ++num_connections;
    Pair pair{.client = accept(listener_, nullptr, nullptr), .server = socket(AF_INET, SOCK_STREAM, 0)};
    sockaddr_in address = loopback(to_);
    pair.is_over = connect(pair.server, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0;
    pairs.push_back(pair);
  }
  void pass(Pair& pair, bool is_forth) {
    std::array<char, 2048> bytes;
    ssize_t count = recv(is_forth ? pair.client : pair.server, bytes.data(), bytes.size(), 0);
    if (count <= 0) {
      pair.is_over = true;
      return;
    }
    if (!is_forth && fault != RelayFault::none && pair.num_back + static_cast<std::uint64_t>(count) > at) {
      const std::uint64_t first = at > pair.num_back ? at - pair.num_back : 0;
      if (fault == RelayFault::flips && at >= pair.num_back) bytes[first] = static_cast<char>(bytes[first] ^ 4);
      if (fault != RelayFault::flips) count = static_cast<ssize_t>(first);
      pair.is_over = fault == RelayFault::cuts;
      pair.is_stalled = fault == RelayFault::stalls;
    }
    if (!is_forth) pair.num_back += static_cast<std::uint64_t>(count);
    for (ssize_t sent = 0; sent < count;) {
      const ssize_t now = send(is_forth ? pair.server : pair.client, &bytes[static_cast<std::size_t>(sent)],
                               static_cast<std::size_t>(count - sent), MSG_NOSIGNAL);
      if (now <= 0) {
        pair.is_over = true;
        return;
      }
      sent += now;
    }
  }

  const std::uint16_t to_;
  const int listener_;
  std::uint16_t port_ = 0;
  std::atomic<bool> stops_ = false;
  std::thread thread_;
};

}  // namespace quire::test
