// Tests how users and requests may write the address of another server.
#include "engine/tiers/peer_address.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(PeerAddress, IsAHostOrAnIpAddressWithAPort) {
  struct Case {
    const char* text;
    const char* host;
    std::uint16_t port;
  };
  for (const Case& one : {Case{"host:1", "host", 1},
                          {"a:65535", "a", 65535},
                          {"10.0.0.1:5600", "10.0.0.1", 5600},
                          {"[::1]:5600", "::1", 5600},
                          {"[a]:7", "a", 7}}) {
    SCOPED_TRACE(one.text);
    const auto address = parse_peer_address(one.text, "kv_peers");
    ASSERT_TRUE(address) << address.error().to_string();
    EXPECT_EQ(address->host, one.host);
    EXPECT_EQ(address->port, one.port);
  }
}

TEST(PeerAddress, RefusesOtherTextsWithAReason) {
  const std::pair<const char*, const char*> cases[] = {{"", "has no host or no port"},
                                                       {"host", "has no host or no port"},
                                                       {":5600", "has no host or no port"},
                                                       {"::1:5600", "is not an address"},
                                                       {"[]:1", "is not an address"},
                                                       {"[::1:1", "is not an address"},
                                                       {"::1]:1", "is not an address"},
                                                       {"a]:1", "is not an address"},
                                                       {"host:", "has no port from 1 to 65535"},
                                                       {"host:0", "has no port from 1 to 65535"},
                                                       {"host:65536", "has no port from 1 to 65535"},
                                                       {"host:12x", "has no port from 1 to 65535"},
                                                       {"host:-1", "has no port from 1 to 65535"}};
  for (const auto& [text, problem] : cases) {
    const auto address = parse_peer_address(text, "kv_peers");
    ASSERT_FALSE(address) << text;
    EXPECT_EQ(address.error().to_string(), "kv_peers: '" + std::string(text) + "' " + problem + "; use HOST:PORT or [IPv6]:PORT");
    EXPECT_EQ(address.error().code, ErrorCode::invalid_argument);
  }
}

TEST(PeerAddress, MayAskForAFreePort) {
  EXPECT_EQ(parse_peer_address("host:0", "kv_share", true).value().port, 0);
  EXPECT_EQ(parse_peer_address("host:9", "kv_share", true).value().port, 9);
  EXPECT_FALSE(parse_peer_address("host:", "kv_share", true));
}

TEST(PeerAddress, SpellingsOfAHostHaveOneForm) {
  for (const auto& [host, form] : {std::pair("LocalHost-AZ.Example", "localhost-az.example"),
                                   {"@[`{09", "@[`{09"},
                                   {"127.0.0.1", "127.0.0.1"},
                                   {"127.0.0.01", "127.0.0.01"},
                                   {"0:0:0:0:0:0:0:1", "::1"},
                                   {"[::1]", "::1"},
                                   {"[2001:DB8:0::1]", "2001:db8::1"},
                                   {"[A]", "a"},
                                   {"[]", "[]"},
                                   {"[A", "[a"},
                                   {"A]", "a]"},
                                   {"", ""}})
    EXPECT_EQ(canonical_host(host), form) << host;
}

}  // namespace
}  // namespace quire
