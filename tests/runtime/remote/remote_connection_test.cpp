// Tests one connection to a store against a store that the test plays: the bytes of the login, each kind of reply, and how the connection
// is lost.
#include "runtime/remote/remote_connection.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/remote/scripted_store.h"
#include "runtime/tier/tier_support.h"

namespace quire::test {
namespace {

struct StoreLine {
  explicit StoreLine(const RemoteAddress& address, std::uint64_t max_reply_bytes = 1000)
      : connection(address, std::make_shared<NetTls>(), max_reply_bytes) {}
  // Returns the next reply, or nullopt when the connection is lost.
  std::optional<RemoteReply> next() {
    std::optional<RemoteReply> reply;
    EXPECT_TRUE(comes_true([&] {
      const bool is_there = connection.advance();
      reply = connection.next();
      return reply || !is_there || connection.is_lost();
    }));
    return reply;
  }
  void send(const std::vector<std::string>& words) { connection.send(words); }
  // Waits until everything is written.
  void flush() {
    EXPECT_TRUE(comes_true([&] {
      connection.advance();
      return connection.events() == POLLIN || connection.is_lost();
    }));
  }
  RemoteConnection connection;
};

std::string text_of(const RemoteReply& reply) {
  return {reinterpret_cast<const char*>(reply.bytes.data()), reply.bytes.size()};
}

TEST(RemoteConnectionScript, SendsItsCommandsInOrder) {
  TestListener listener;
  StoreLine line(address_of_port(listener.port()));
  EXPECT_FALSE(line.connection.has_opened());
  EXPECT_FALSE(line.connection.is_lost());
  EXPECT_GE(line.connection.descriptor(), 0);
  line.send({"GET", "key"});
  line.send({"SET", std::string("a\0b\r\n", 5), ""});
  ScriptedStore store(listener);
  line.flush();
  EXPECT_TRUE(line.connection.has_opened());
  store.expect("*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n*3\r\n$3\r\nSET\r\n$5\r\n" + std::string("a\0b\r\n", 5) + "\r\n$0\r\n\r\n");
  line.send({"PING"});
  EXPECT_EQ(line.connection.events(), POLLIN | POLLOUT);
  line.flush();
  store.expect("*1\r\n$4\r\nPING\r\n");
}

TEST(RemoteConnectionScript, LogsInBeforeItsCommands) {
  struct Case {
    const char *user, *password;
    std::uint32_t database;
    std::string login;
  };
  const std::vector<Case> cases = {{"", "", 0, ""},
                                   {"", "pw", 0, "*2\r\n$4\r\nAUTH\r\n$2\r\npw\r\n"},
                                   {"me", "pw", 0, "*3\r\n$4\r\nAUTH\r\n$2\r\nme\r\n$2\r\npw\r\n"},
                                   {"me", "", 0, ""},
                                   {"", "", 1, "*2\r\n$6\r\nSELECT\r\n$1\r\n1\r\n"},
                                   {"", "pw", 12, "*2\r\n$4\r\nAUTH\r\n$2\r\npw\r\n*2\r\n$6\r\nSELECT\r\n$2\r\n12\r\n"}};
  for (const Case& one : cases) {
    TestListener listener;
    RemoteAddress address = address_of_port(listener.port());
    address.user = one.user;
    address.password = one.password;
    address.database = one.database;
    StoreLine line(address);
    line.send({"PING"});
    ScriptedStore store(listener);
    line.flush();
    store.expect(one.login + "*1\r\n$4\r\nPING\r\n");
    // The replies to the login are not returned.
    for (std::size_t at = one.login.find('*'); at != std::string::npos; at = one.login.find('*', at + 1)) store.say("+OK\r\n");
    store.say("+PONG\r\n");
    const auto reply = line.next();
    ASSERT_TRUE(reply) << one.login;
    EXPECT_EQ(reply->text, "PONG");
  }
}

TEST(RemoteConnectionScript, IsLostWhenTheLoginFails) {
  TestListener listener;
  RemoteAddress address = address_of_port(listener.port());
  address.password = "pw";
  address.database = 3;
  StoreLine line(address);
  ScriptedStore store(listener);
  line.flush();
  store.say("+OK\r\n-ERR DB index is out of range\r\n+PONG\r\n");
  EXPECT_FALSE(line.next());
  EXPECT_TRUE(line.connection.is_lost());
  EXPECT_EQ(line.connection.lost_reason(), "ERR DB index is out of range");
  EXPECT_FALSE(line.connection.advance());
}

TEST(RemoteConnectionScript, ReturnsEachKindOfReply) {
  TestListener listener;
  StoreLine line(address_of_port(listener.port()));
  ScriptedStore store(listener);
  line.flush();
  store.say("$-1\r\n+OK\r\n:-42\r\n$5\r\nva\r\nl\r\n$0\r\n\r\n-ERR no\r\n:7\r\n");
  auto reply = line.next();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->kind, RemoteReplyKind::nil);
  EXPECT_TRUE(reply->bytes.empty() && reply->text.empty());
  reply = line.next();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->kind, RemoteReplyKind::status);
  EXPECT_EQ(reply->text, "OK");
  reply = line.next();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->kind, RemoteReplyKind::integer);
  EXPECT_EQ(reply->integer, -42);
  reply = line.next();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->kind, RemoteReplyKind::bytes);
  EXPECT_EQ(text_of(*reply), "va\r\nl");
  reply = line.next();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->kind, RemoteReplyKind::bytes);
  EXPECT_EQ(text_of(*reply), "");
  reply = line.next();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->kind, RemoteReplyKind::error);
  EXPECT_EQ(reply->text, "ERR no");
  reply = line.next();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->integer, 7);
  EXPECT_FALSE(line.connection.next());
  EXPECT_FALSE(line.connection.is_lost());
}

TEST(RemoteConnectionScript, IsLostAfterInvalidReplies) {
  for (const char* text : {"*2\r\n:1\r\n:2\r\n", "hello\r\n", "$99999999999999999999\r\n", "$-2\r\n"}) {
    TestListener listener;
    StoreLine line(address_of_port(listener.port()));
    ScriptedStore store(listener);
    line.flush();
    store.say(std::string(":5\r\n") + text);
    auto reply = line.next();
    ASSERT_TRUE(reply) << text;
    EXPECT_EQ(reply->integer, 5) << "the reply before is valid";
    EXPECT_FALSE(line.next()) << text;
    EXPECT_TRUE(line.connection.is_lost()) << text;
    EXPECT_TRUE(line.connection.lost_reason().starts_with("the store sent invalid RESP: ")) << line.connection.lost_reason();
    EXPECT_FALSE(line.connection.next()) << "nothing after it is read";
    EXPECT_TRUE(line.connection.has_opened());
  }
}

TEST(RemoteConnectionScript, LimitsTheBytesOfAReply) {
  {
    TestListener listener;
    StoreLine line(address_of_port(listener.port()), 1000);
    ScriptedStore store(listener);
    line.flush();
    store.say("$950\r\n" + std::string(900, 'x'));
    for (int i = 0; i < 5; ++i) {
      EXPECT_TRUE(line.connection.advance());
      EXPECT_FALSE(line.connection.next()) << "the reply is not whole yet";
    }
    store.say(std::string(50, 'x') + "\r\n");
    const auto reply = line.next();
    ASSERT_TRUE(reply);
    EXPECT_EQ(text_of(*reply), std::string(950, 'x'));
  }
  {
    // Replies that were taken do not count.
    TestListener listener;
    StoreLine line(address_of_port(listener.port()), 1000);
    ScriptedStore store(listener);
    line.flush();
    std::string replies;
    for (int i = 0; i < 180; ++i) replies += "+OK\r\n";
    store.say(replies + "$900\r\n" + std::string(800, 'x'));
    for (int i = 0; i < 180; ++i) EXPECT_TRUE(line.next()) << i;
    EXPECT_FALSE(line.connection.next());
    EXPECT_FALSE(line.connection.is_lost());
    store.say(std::string(100, 'x') + "\r\n");
    const auto reply = line.next();
    ASSERT_TRUE(reply);
    EXPECT_EQ(text_of(*reply), std::string(900, 'x'));
  }
  TestListener listener;
  StoreLine line(address_of_port(listener.port()), 1000);
  ScriptedStore store(listener);
  line.flush();
  store.say("$3000\r\n" + std::string(2000, 'x'));
  EXPECT_FALSE(line.next());
  EXPECT_EQ(line.connection.lost_reason(), "the store sent a reply that is longer than any block");
}

TEST(RemoteConnectionScript, ReturnsRepliesThatCameBeforeTheEnd) {
  TestListener listener;
  StoreLine line(address_of_port(listener.port()));
  ScriptedStore store(listener);
  line.flush();
  store.say("+OK\r\n");
  store.hang_up();
  const auto reply = line.next();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->text, "OK");
  EXPECT_FALSE(line.next());
  EXPECT_TRUE(line.connection.is_lost());
  EXPECT_EQ(line.connection.lost_reason(), "the connection was closed");
  EXPECT_TRUE(line.connection.has_opened());
  EXPECT_EQ(line.connection.descriptor(), -1);
}

TEST(RemoteConnectionScript, HasNeverOpenedIfNothingListens) {
  RemoteAddress address;
  {
    const TestListener gone;
    address = address_of_port(gone.port());
  }
  StoreLine line(address);
  EXPECT_FALSE(line.next());
  EXPECT_TRUE(line.connection.is_lost());
  EXPECT_FALSE(line.connection.has_opened());
  EXPECT_EQ(line.connection.lost_reason(), "Connection refused");
}

TEST(RemoteConnectionScript, ReadsRepliesWhileTheSocketTakesNoCommands) {
  TestListener listener;
  StoreLine line(address_of_port(listener.port()));
  line.send({"SET", "key", std::string(std::size_t{24} << 20U, 'v')});
  ScriptedStore store(listener);
  for (const char* text : {"first", "second"}) {
    store.say(std::string("+") + text + "\r\n");
    const auto reply = line.next();
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->text, text);
    EXPECT_EQ(line.connection.events(), POLLIN | POLLOUT) << "the store has not read the command";
  }
}

// Fills the queue of a socket that accepts no connection, so that the next connection does not open.
TEST(RemoteConnectionScript, WaitsForAConnectionThatDoesNotOpenYet) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(socket, 0), 0);
  socklen_t size = sizeof address;
  getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  std::vector<int> fillers;
  bool is_full = false;
  while (fillers.size() < 20 && !is_full) {
    fillers.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    connect(fillers.back(), reinterpret_cast<sockaddr*>(&address), sizeof address);
    pollfd polled{.fd = fillers.back(), .events = POLLOUT, .revents = 0};
    is_full = ::poll(&polled, 1, 20) == 0;
  }
  EXPECT_TRUE(is_full);
  const RemoteAddress full = address_of_port(ntohs(address.sin_port));
  StoreLine line(full);
  PeerFrameStream frames(std::make_unique<NetStream>(full, std::make_shared<NetTls>()), 100);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(line.connection.advance());
    EXPECT_TRUE(frames.advance());
  }
  EXPECT_FALSE(line.connection.is_lost() || line.connection.has_opened());
  EXPECT_FALSE(frames.is_lost());
  for (const int filler : fillers) close(filler);
  close(socket);
}

TEST(RemoteConnectionScript, KeepsCommandsThatTheSocketDoesNotTakeYet) {
  TestListener listener;
  StoreLine line(address_of_port(listener.port()));
  const std::string value(std::size_t{6} << 20U, 'v');
  line.send({"SET", "key", value});
  line.send({"PING"});
  ScriptedStore store(listener);
  EXPECT_TRUE(comes_true([&] {
    EXPECT_TRUE(line.connection.advance());
    return store.heard().ends_with("PING\r\n");
  }));
  store.expect("*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$6291456\r\n" + value + "\r\n*1\r\n$4\r\nPING\r\n");
  EXPECT_EQ(line.connection.events(), POLLIN);
}

}  // namespace
}  // namespace quire::test
