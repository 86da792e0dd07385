#include "runtime/remote/remote_address.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(RemoteAddress, ParsesHostPortUserAndPassword) {
  const RemoteAddress plain = parse_remote_address("redis://store").value();
  EXPECT_EQ(plain.host, "store");
  EXPECT_EQ(plain.port, 6379);
  EXPECT_FALSE(plain.is_tls || plain.is_local());
  const RemoteAddress full = parse_remote_address("rediss://user:p%40ss@[::1]:1234/5").value();
  EXPECT_EQ(full.user, "user");
  EXPECT_EQ(full.password, "p@ss");
  EXPECT_EQ(full.host, "::1");
  EXPECT_EQ(full.port, 1234);
  EXPECT_EQ(full.database, 5U);
  EXPECT_TRUE(full.is_tls && full.is_local());
  EXPECT_EQ(full.name(), "[::1]:1234");
  EXPECT_EQ(parse_remote_address("redis://:secret@127.0.0.1/").value().password, "secret");
  const RemoteAddress socket = parse_remote_address("unix:///run/redis.sock").value();
  EXPECT_EQ(socket.unix_path, "/run/redis.sock");
  EXPECT_TRUE(socket.is_local());
}

RemoteAddress of_host(const char* host) {
  RemoteAddress address;
  address.host = host;
  return address;
}

TEST(RemoteAddress, IsLocalOnlyForThisMachine) {
  for (const char* host : {"localhost", "127.0.0.1", "127.1.2.3", "::1"}) EXPECT_TRUE(of_host(host).is_local()) << host;
  for (const char* host : {"127.evil.example", "127.0.0.1.evil.example", "128.0.0.1", "10.0.0.1", "localhost.example", "::2"})
    EXPECT_FALSE(of_host(host).is_local()) << host;
}

TEST(RemoteAddress, RefusesInvalidAddressesWithoutShowingThePassword) {
  for (const char* text :
       {"", "store:6379", "http://store", "redis://", "redis://:hidden@", "redis://u:hidden@h:0", "redis://h:65536", "redis://h/first",
        "redis://u:hidden@h?db=1", "redis://h#1", "unix://host/path", "unix://", "redis://u:hidden@h:x"}) {
    const auto parsed = parse_remote_address(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().field, "kv_remote") << text;
    EXPECT_EQ(parsed.error().to_string().find("hidden"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace quire
