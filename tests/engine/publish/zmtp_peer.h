#pragma once
// A ZeroMQ peer that needs no library: it speaks ZMTP 3.0 (https://rfc.zeromq.org/spec/23) over a Unix socket.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

class ZmtpPeer {
 public:
  // Connects to ipc://PATH as a socket of this type: "SUB", "DEALER". Waits for the other side's greeting.
  ZmtpPeer(const std::string& path, std::string_view type) : socket_(::socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    EXPECT_LT(path.size(), sizeof address.sun_path);
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0) << path;
    greet(type);
  }
  // Accepts one connection at PATH, for a publisher that connects to a router.
  static int listen_at(const std::string& path) {
    const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    EXPECT_EQ(::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(listener, 1), 0);
    return listener;
  }
  ZmtpPeer(int listener, std::string_view type) : socket_(::accept(listener, nullptr, nullptr)) {
    ::close(listener);
    greet(type);
  }
  ~ZmtpPeer() { ::close(socket_); }
  ZmtpPeer(const ZmtpPeer&) = delete;
  ZmtpPeer& operator=(const ZmtpPeer&) = delete;

  void send(const std::vector<std::string>& frames) {
    for (std::size_t i = 0; i < frames.size(); ++i) write_frame(i + 1 < frames.size() ? 1 : 0, frames[i]);
  }
  void subscribe(std::string_view topic) { send({'\1' + std::string(topic)}); }
  void unsubscribe(std::string_view topic) { send({'\0' + std::string(topic)}); }

  // Returns the frames of the next message; empty if none comes within a minute.
  std::vector<std::string> receive() {
    std::vector<std::string> frames;
    for (std::uint8_t flags = 1; (flags & 1) != 0;) {
      const auto frame = read_frame(flags);
      if (!frame) return {};
      if ((flags & 4) == 0) frames.push_back(*frame);
      if ((flags & 4) != 0) flags = 1;  // a command between messages
    }
    return frames;
  }

 private:
  void greet(std::string_view type) {
    std::string greeting("\xff\0\0\0\0\0\0\0\0\x7f\3\0NULL", 16);
    greeting.resize(64, '\0');
    write_all(greeting);
    std::array<char, 64> theirs{};
    EXPECT_TRUE(read_all(theirs.data(), theirs.size()));
    std::string ready("\5READY\13Socket-Type\0\0\0", 21);
    ready += static_cast<char>(type.size());
    ready += type;
    write_frame(4, ready);
    std::uint8_t flags = 0;
    EXPECT_TRUE(read_frame(flags).has_value());
    EXPECT_EQ(flags & 4, 4) << "the other side is ready";
  }
  void write_all(std::string_view bytes) { EXPECT_EQ(::write(socket_, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size())); }
  void write_frame(std::uint8_t flags, std::string_view body) {
    const bool is_long = body.size() > UINT8_MAX;
    std::string frame = {static_cast<char>(is_long ? flags | 2 : flags)};
    for (unsigned shift = is_long ? 64 : 8; shift > 0; shift -= 8) frame += static_cast<char>(body.size() >> (shift - 8));
    write_all(frame + std::string(body));
  }
  bool read_all(char* to, std::size_t size) {
    while (size > 0) {
      pollfd waits{.fd = socket_, .events = POLLIN, .revents = 0};
      if (::poll(&waits, 1, 60'000) <= 0) return false;
      const ssize_t count = ::read(socket_, to, size);
      if (count <= 0) return false;
      to += count;
      size -= static_cast<std::size_t>(count);
    }
    return true;
  }
  std::optional<std::string> read_frame(std::uint8_t& flags) {
    std::array<char, 8> size{};
    char first = 0;
    if (!read_all(&first, 1)) return std::nullopt;
    flags = static_cast<std::uint8_t>(first);
    const std::size_t num_size_bytes = (flags & 2) != 0 ? 8 : 1;
    if (!read_all(size.data(), num_size_bytes)) return std::nullopt;
    std::uint64_t num_bytes = 0;
    for (std::size_t i = 0; i < num_size_bytes; ++i) num_bytes = num_bytes << 8U | static_cast<std::uint8_t>(size[i]);
    std::string body(num_bytes, '\0');
    if (!read_all(body.data(), body.size())) return std::nullopt;
    return body;
  }

  int socket_;
};

}  // namespace quire
