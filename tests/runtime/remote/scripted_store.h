#pragma once
// The store's side of a connection in the hands of a test: it sees the commands as bytes and answers with any bytes.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/remote/scripted_peer.h"
#include "runtime/tier/tier_support.h"

namespace quire::test {

class ScriptedStore {
 public:
  // Accepts the next connection.
  explicit ScriptedStore(TestListener& listener) : socket_(listener.accept_one()) {}
  ~ScriptedStore() { hang_up(); }
  ScriptedStore(const ScriptedStore&) = delete;
  ScriptedStore& operator=(const ScriptedStore&) = delete;

  void hang_up() {
    if (socket_ >= 0) close(std::exchange(socket_, -1));
  }
  void say(std::string_view text) const {
    EXPECT_EQ(send(socket_, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  }
  [[nodiscard]] int descriptor() const { return socket_; }
  // Returns all bytes that have come so far.
  const std::string& heard() {
    std::array<char, 4096> part;
    for (ssize_t count = 1; count > 0;) {
      count = recv(socket_, part.data(), part.size(), MSG_DONTWAIT);
      if (count > 0) heard_.append(part.data(), static_cast<std::size_t>(count));
    }
    return heard_;
  }
  // Waits until these bytes have come, and expects no others. They are forgotten then.
  void expect(std::string_view text) {
    comes_true([&] { return heard().size() >= text.size(); });
    EXPECT_EQ(heard_, text);
    heard_.clear();
  }
  [[nodiscard]] bool is_closed() {
    return comes_true([&] {
      char byte = 0;
      const ssize_t count = recv(socket_, &byte, 1, MSG_DONTWAIT);
      return count == 0 || (count < 0 && errno != EAGAIN);
    });
  }

 private:
  int socket_;
  std::string heard_;
};

}  // namespace quire::test
