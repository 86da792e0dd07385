#include "runtime/remote/remote_address.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

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

TEST(RemoteAddress, SaysWhatIsWrongWithAnAddress) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"", "the address is not a valid URL"},
      {"redis://h?db=1", "the address must not have a query or a fragment"},
      {"redis://h#1", "the address must not have a query or a fragment"},
      {"http://h", "the address must begin with redis://, rediss:// or unix://"},
      {"unix://", "a unix:// address must have a path and no host"},
      {"unix:///", "a unix:// address must have a path and no host"},
      {"unix://host/path", "a unix:// address must have a path and no host"},
      {"unix://:12/path", "a unix:// address must have a path and no host"},
      {"redis://:1", "the address has no host"},
      {"redis://h:0", "the port must be a number from 1 to 65535"},
      {"redis://h:65536", "the port must be a number from 1 to 65535"},
      {"redis://h:", "the port must be a number from 1 to 65535"},
      {"redis://h/x", "the path after the host must be a database number"},
      {"redis://h/1x", "the path after the host must be a database number"},
      {"redis://h/1/2", "the path after the host must be a database number"},
      {"redis://h/-1", "the path after the host must be a database number"},
      {"redis://h/4294967296", "the path after the host must be a database number"}};
  for (const auto& [text, problem] : cases) {
    const auto parsed = parse_remote_address(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().to_string(), std::string("kv_remote: ") + problem +
                                              "; use redis://[user:password@]host[:port][/database], rediss:// for TLS, or unix:///path")
        << text;
  }
}

TEST(RemoteAddress, AcceptsTheLimitsOfItsFields) {
  const auto parsed = [](const char* text) { return parse_remote_address(text).value(); };
  EXPECT_EQ(parsed("redis://h:1").port, 1);
  EXPECT_EQ(parsed("redis://h:65535").port, 65535);
  EXPECT_EQ(parsed("redis://h/0").database, 0U);
  EXPECT_EQ(parsed("redis://h/4294967295").database, 4294967295U);
  EXPECT_EQ(parsed("redis://h/").database, 0U);
  EXPECT_EQ(parsed("unix:///a").unix_path, "/a");
  EXPECT_FALSE(parsed("unix:///a").is_tls);
  EXPECT_EQ(parsed("unix:///a").host, "");
  EXPECT_EQ(parsed("redis://me@h").user, "me");
  EXPECT_EQ(parsed("redis://me@h").password, "");
  EXPECT_EQ(parsed("redis://h").user, "");
  EXPECT_TRUE(parsed("rediss://h").is_tls);
  EXPECT_EQ(parsed("rediss://h").port, 6379);
}

TEST(RemoteAddress, NamesTheAddressWithoutCredentials) {
  const auto name = [](const char* text) { return parse_remote_address(text).value().name(); };
  EXPECT_EQ(name("redis://me:secret@store"), "store:6379");
  EXPECT_EQ(name("rediss://10.0.0.1:12/3"), "10.0.0.1:12");
  EXPECT_EQ(name("redis://[fe80::1]"), "[fe80::1]:6379");
  EXPECT_EQ(name("unix:///run/redis.sock"), "/run/redis.sock");
}

}  // namespace
}  // namespace quire
