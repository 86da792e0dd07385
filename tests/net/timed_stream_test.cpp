// Tests what a stream with a deadline reports about its peer, and that it waits no longer than allowed.
#include "net/timed_stream.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string_view>
#include <thread>

#include "support/loopback_socket.h"

namespace quire {
namespace {

using std::chrono::milliseconds;
namespace errors = boost::asio::error;

// Listens on a free port.
class Listener {
 public:
  Listener() { port_ = test::listen_on_loopback(descriptor_, 4); }
  ~Listener() { close(descriptor_); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  [[nodiscard]] NetAddress address() const { return {.host = "127.0.0.1", .port = port_, .unix_path = {}, .is_tls = false}; }
  // Accepts a connection, sends `text` and closes it.
  void say(std::string_view text) const {
    const int accepted = accept(descriptor_, nullptr, nullptr);
    EXPECT_EQ(send(accepted, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
    close(accepted);
  }

 private:
  int descriptor_ = socket(AF_INET, SOCK_STREAM, 0);
  std::uint16_t port_ = 0;
};

TimedStream stream_to(const Listener& listener, milliseconds time = milliseconds(10'000)) {
  return {TimedStream::Clock::now() + time, listener.address(), std::make_shared<const NetTls>()};
}

TEST(TimedStream, ReadsToTheEndAndReportsEndOfFile) {
  const Listener listener;
  TimedStream stream = stream_to(listener);
  ASSERT_FALSE(stream.open()) << stream.why();
  listener.say("all of it");
  std::array<char, 64> text{};
  boost::system::error_code code;
  EXPECT_EQ(stream.read_some(boost::asio::buffer(text), code), 9U);
  EXPECT_EQ(std::string_view(text.data()), "all of it");
  EXPECT_EQ(stream.read_some(boost::asio::buffer(text), code), 0U);
  EXPECT_EQ(code, errors::eof);
}

TEST(TimedStream, WaitsNoLongerThanItsDeadline) {
  const Listener listener;
  const auto begin = TimedStream::Clock::now();
  TimedStream stream = stream_to(listener, milliseconds(500));
  ASSERT_FALSE(stream.open()) << stream.why();
  std::array<char, 8> text{};
  boost::system::error_code code;
  EXPECT_EQ(stream.read_some(boost::asio::buffer(text), code), 0U);
  EXPECT_EQ(code, errors::timed_out);
  EXPECT_GE(TimedStream::Clock::now() - begin, milliseconds(500));
}

// Data that arrives in time is not read after the deadline.
TEST(TimedStream, DoesNothingAfterItsDeadline) {
  const Listener listener;
  EXPECT_EQ(stream_to(listener, milliseconds(0)).open(), errors::timed_out);
  TimedStream stream = stream_to(listener, milliseconds(1000));
  ASSERT_FALSE(stream.open()) << stream.why();
  listener.say("");
  listener.say("too late");
  std::this_thread::sleep_for(milliseconds(1050));
  std::array<char, 8> text{};
  boost::system::error_code code;
  EXPECT_EQ(stream.read_some(boost::asio::buffer(text), code), 0U);
  EXPECT_EQ(code, errors::timed_out);
  EXPECT_EQ(stream.write_some(boost::asio::buffer(text), code), 0U);
  EXPECT_EQ(code, errors::timed_out);
}

TEST(TimedStream, ReportsWhyThereIsNoConnection) {
  std::uint16_t port = 0;
  {
    const Listener gone;
    port = gone.address().port;
  }
  TimedStream stream(TimedStream::Clock::now() + milliseconds(10'000),
                     {.host = "127.0.0.1", .port = port, .unix_path = {}, .is_tls = false}, std::make_shared<const NetTls>());
  EXPECT_EQ(stream.open(), errors::connection_reset);
  EXPECT_EQ(stream.why(), "Connection refused");
}

TEST(TimedStream, DoesNotConnectToARefusedAddress) {
  const Listener listener;
  unsigned num_asked = 0;
  TimedStream stream(TimedStream::Clock::now() + milliseconds(10'000), listener.address(), std::make_shared<const NetTls>(),
                     [&](const sockaddr& address) {
                       EXPECT_EQ(address.sa_family, AF_INET);
                       ++num_asked;
                       return false;
                     });
  EXPECT_TRUE(stream.open());
  EXPECT_EQ(num_asked, 1U);
  EXPECT_NE(stream.why().find("are not allowed"), std::string::npos) << stream.why();
}

TEST(NetStream, ReportsTheAddressOfItsPeer) {
  const Listener listener;
  NetStream stream(listener.address(), std::make_shared<const NetTls>());
  for (int i = 0; i < 5000 && stream.advance() == NetStream::State::opening; ++i) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(stream.peer_address(), "127.0.0.1");
  listener.say("");
  std::array<std::byte, 8> text{};
  for (int i = 0; i < 5000 && stream.read(text) == 0; ++i) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(stream.peer_address(), "") << "a lost stream has no peer";
}

}  // namespace
}  // namespace quire
