#pragma once
// A store in this process that speaks enough RESP for a tier. On request it misbehaves: it swaps, cuts, delays and invents values, sends
// unrequested answers, stalls, refuses, forgets, closes and opens again.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/random.h"

namespace quire::test {

class ToyRedis {
 public:
  // Faults that replace a right answer; there are kNumFaults.
  enum class Fault : std::uint8_t {
    swaps,            // another key's value
    cuts_value,       // a value without its end
    cuts_connection,  // in the middle of an answer
    delays,
    stalls,      // longer than any client waits
    flips,       // a bit of the value
    invents,     // random bytes of the right length
    forgets,     // there is no such key
    lies,        // about the length of a value, or about a store
    errors,      // an error
    wrong_kind,  // a number instead of a value, or the reverse
    lists,       // nested lists with very many elements
    huge,        // the beginning of a value that never ends
    talks,       // one answer too many
    garbage      // no RESP
  };
  static constexpr std::uint32_t kNumFaults = 15;

  ToyRedis() { open(); }
  ~ToyRedis() { close(); }
  ToyRedis(const ToyRedis&) = delete;
  ToyRedis& operator=(const ToyRedis&) = delete;

  [[nodiscard]] std::string url() const { return fmt::format("redis://127.0.0.1:{}", port_); }
  [[nodiscard]] std::uint16_t port() const { return port_; }
  // Opens again at the same port.
  void open();
  // Cuts the connections and keeps the values.
  void close();

  // Share of all answers that are faulty.
  std::atomic<double> fault_chance = 0.0;
  std::atomic<double> stall_s = 0.3;
  std::atomic<bool> stalls = false, is_full = false;
  std::atomic<std::uint64_t> num_commands = 0, num_faults = 0;
  // Returns an error ("MOVED ...") instead of the answer for a key, or nullopt. The flag says whether ASKING came before.
  std::function<std::optional<std::string>(const std::string& key, bool is_asking)> redirect = {};
  std::string password = {};

  std::map<std::string, std::string> values() {
    const std::lock_guard lock(mutex_);
    return values_;
  }
  // Returns the seconds that a key has left, as its last command said.
  std::map<std::string, std::string> ttls() {
    const std::lock_guard lock(mutex_);
    return ttls_;
  }
  void put(const std::string& key, std::string value) {
    const std::lock_guard lock(mutex_);
    values_[key] = std::move(value);
  }
  void forget_ttls() {
    const std::lock_guard lock(mutex_);
    ttls_.clear();
  }
  void forget_all() {
    const std::lock_guard lock(mutex_);
    values_.clear();
  }

 private:
  using Words = std::vector<std::string>;
  struct Peer {
    int descriptor;
    bool is_in = false, is_asking = false;
    Random random{0};
  };

  void listen_on();
  void serve(int descriptor);
  std::string answer(Peer& peer, const Words& words);
  // Returns the bytes to send instead of `right`. nullopt ends all output of the connection.
  std::optional<std::string> spoil(Peer& peer, const Words& words, std::string right);
  static std::optional<Words> take_command(std::string& input);
  static std::string bulk(std::string_view value) { return fmt::format("${}\r\n{}\r\n", value.size(), value); }
  std::string any_value(Random& random) {
    const std::lock_guard lock(mutex_);
    if (values_.empty()) return {};
    return std::next(values_.begin(), static_cast<std::ptrdiff_t>(random.below(values_.size())))->second;
  }

  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::thread acceptor_;
  std::mutex mutex_;
  std::map<std::string, std::string> values_, ttls_;
  std::map<int, std::thread> peers_;  // by descriptor
  bool closes_ = false;
  std::uint64_t num_peers_ = 0;
};

inline void ToyRedis::open() {
  closes_ = false;
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int is_on = 1;
  setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &is_on, sizeof is_on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port_);
  ASSERT_EQ(bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(listener_, 64), 0);
  socklen_t size = sizeof address;
  getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { listen_on(); });
}

inline void ToyRedis::close() {
  if (listener_ < 0) return;
  std::map<int, std::thread> peers;
  {
    const std::lock_guard lock(mutex_);
    closes_ = true;
  }
  shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  ::close(std::exchange(listener_, -1));
  {
    const std::lock_guard lock(mutex_);
    peers.swap(peers_);
    for (const auto& [descriptor, thread] : peers) shutdown(descriptor, SHUT_RDWR);
  }
  for (auto& [descriptor, thread] : peers) {
    thread.join();
    ::close(descriptor);
  }
}

inline void ToyRedis::listen_on() {
  for (;;) {
    const int descriptor = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (descriptor < 0) return;
    const std::lock_guard lock(mutex_);
    if (closes_) {
      ::close(descriptor);
      return;
    }
    peers_.emplace(descriptor, std::thread([this, descriptor] { serve(descriptor); }));
  }
}

// A descriptor stays open until close(), so that its number is not reused.
inline void ToyRedis::serve(int descriptor) {
  Peer peer{.descriptor = descriptor};
  {
    const std::lock_guard lock(mutex_);
    peer.random = Random(++num_peers_);
  }
  std::string input, part(1 << 16, '\0');
  for (;;) {
    const ssize_t num_read = recv(descriptor, part.data(), part.size(), 0);
    if (num_read <= 0) break;
    input.append(part, 0, static_cast<std::size_t>(num_read));
    while (const std::optional<Words> words = take_command(input)) {
      ++num_commands;
      while (stalls) {
        {
          const std::lock_guard lock(mutex_);
          if (closes_) return;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      std::optional<std::string> text = answer(peer, *words);
      if (peer.random.chance(fault_chance)) text = spoil(peer, *words, *std::move(text));
      if (text && send(descriptor, text->data(), text->size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text->size())) continue;
      shutdown(descriptor, SHUT_RDWR);
      return;
    }
  }
  shutdown(descriptor, SHUT_RDWR);
}

inline std::optional<ToyRedis::Words> ToyRedis::take_command(std::string& input) {
  std::size_t at = 0;
  const auto number = [&](char kind) -> std::optional<std::size_t> {
    const std::size_t end = input.find("\r\n", at);
    if (end == std::string::npos) return std::nullopt;
    EXPECT_EQ(input[at], kind);
    const std::size_t value = std::stoul(input.substr(at + 1, end - at - 1));
    at = end + 2;
    return value;
  };
  const auto num_words = number('*');
  if (!num_words) return std::nullopt;
  Words words;
  for (std::size_t i = 0; i < *num_words; ++i) {
    const auto size = number('$');
    if (!size || input.size() < at + *size + 2) return std::nullopt;
    words.push_back(input.substr(at, *size));
    at += *size + 2;
  }
  input.erase(0, at);
  return words;
}

inline std::string ToyRedis::answer(Peer& peer, const Words& words) {
  const std::string& verb = words.at(0);
  if (verb == "AUTH") {
    peer.is_in = words.back() == password;
    return peer.is_in ? "+OK\r\n" : "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
  }
  if (!password.empty() && !peer.is_in) return "-NOAUTH Authentication required.\r\n";
  if (verb == "SELECT") return "+OK\r\n";
  if (verb == "ASKING") {
    peer.is_asking = true;
    return "+OK\r\n";
  }
  const bool is_asking = std::exchange(peer.is_asking, false);
  if (redirect)
    if (const auto error = redirect(words.at(1), is_asking)) return fmt::format("-{}\r\n", *error);
  const std::lock_guard lock(mutex_);
  const auto found = values_.find(words.at(1));
  const bool has_it = found != values_.end();
  if (verb == "GET") return has_it ? bulk(found->second) : "$-1\r\n";
  if (verb == "STRLEN") return fmt::format(":{}\r\n", has_it ? found->second.size() : 0);
  if (verb == "UNLINK") return fmt::format(":{}\r\n", values_.erase(words.at(1)));
  if (verb == "EXPIRE") {
    if (has_it) ttls_[words.at(1)] = words.at(2);
    return fmt::format(":{}\r\n", has_it ? 1 : 0);
  }
  if (verb == "SET" && is_full) return "-OOM command not allowed when used memory > 'maxmemory'.\r\n";
  if (verb != "SET") return "-ERR unknown command\r\n";
  EXPECT_EQ(words.at(3), "EX");
  values_[words.at(1)] = words.at(2);
  ttls_[words.at(1)] = words.at(4);
  return "+OK\r\n";
}

inline std::optional<std::string> ToyRedis::spoil(Peer& peer, const Words& words, std::string right) {
  ++num_faults;
  const bool is_value = right[0] == '$' && right != "$-1\r\n";
  std::string value = is_value ? right.substr(right.find('\n') + 1) : any_value(peer.random);
  if (is_value) value.resize(value.size() - 2);
  const auto fault = static_cast<Fault>(peer.random.below(kNumFaults));
  switch (fault) {
    case Fault::swaps:
      return bulk(any_value(peer.random));
    case Fault::cuts_value:
      return bulk(value.substr(0, peer.random.below(value.size() + 1)));
    case Fault::cuts_connection: {
      const std::size_t num_sent = peer.random.below(right.size());
      send(peer.descriptor, right.data(), num_sent, MSG_NOSIGNAL);
      return std::nullopt;
    }
    case Fault::delays:
      std::this_thread::sleep_for(std::chrono::milliseconds(peer.random.below(10)));
      return right;
    case Fault::stalls:
      if (peer.random.chance(0.9)) return right;  // only a few, since each takes long
      std::this_thread::sleep_for(std::chrono::duration<double>(stall_s));
      return right;
    case Fault::flips:
      if (!value.empty()) value[peer.random.below(value.size())] ^= static_cast<char>(1U << peer.random.below(8));
      return bulk(value);
    case Fault::invents:
      for (char& byte : value) byte = static_cast<char>(peer.random.next());
      return bulk(value);
    case Fault::forgets:
      return "$-1\r\n";
    case Fault::lies:
      return words.at(0) == "SET" ? "+OK\r\n" : fmt::format(":{}\r\n", value.size() + peer.random.below(3) - 1);
    case Fault::errors:
      return "-LOADING Redis is loading the dataset in memory\r\n";
    case Fault::wrong_kind:
      return right[0] == ':' ? bulk(value) : ":1\r\n";
    case Fault::lists:
      return peer.random.chance(0.5) ? "*2147483647\r\n*2147483647\r\n" : "*1\r\n" + right;
    case Fault::huge:
      return "$9223372036854775806\r\n" + std::string(1 << 20, 'x');
    case Fault::talks:
      return right + bulk(value);
    case Fault::garbage:
      for (char& byte : right) byte = static_cast<char>(peer.random.next());
      return right;
  }
  return right;
}

}  // namespace quire::test
