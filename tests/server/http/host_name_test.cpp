// Tests the parts of host names.
#include "server/http/host_name.h"

#include <gtest/gtest.h>

#include <string>

namespace quire {
namespace {

namespace ip = boost::asio::ip;

TEST(HostNames, HaveNamePortAndAddress) {
  const auto parsed = [](const std::string& text) {
    const auto host = parse_host_name(text, 1);
    if (!host) return std::string("invalid");
    return host->name + " " + std::to_string(host->port) + (host->address ? " address" : "") + (host->is_loopback() ? " loopback" : "");
  };
  EXPECT_EQ(parsed("Example.AZ"), "example.az 1");
  EXPECT_EQ(parsed("a:0"), "a 0");
  EXPECT_EQ(parsed("a:"), "a 1");
  EXPECT_EQ(parsed("a:65535"), "a 65535");
  EXPECT_EQ(parsed("localhost:8"), "localhost 8 loopback");
  EXPECT_EQ(parsed("LocalHost"), "localhost 1 loopback");
  EXPECT_EQ(parsed("127.255.255.255"), "127.255.255.255 1 address loopback");
  EXPECT_EQ(parsed("128.0.0.1"), "128.0.0.1 1 address");
  EXPECT_EQ(parsed("[::1]:8"), "::1 8 address loopback");
  EXPECT_EQ(parsed("[::ffff:127.0.0.1]"), "::ffff:127.0.0.1 1 address loopback");
  EXPECT_EQ(parsed("[::2]"), "::2 1 address");
  for (const char* wrong : {"", ":8", "u@a", "[v1.a]", "a b", "[::1"}) EXPECT_EQ(parsed(wrong), "invalid") << wrong;
  EXPECT_EQ(plain_address(ip::make_address("::ffff:1.2.3.4")).to_string(), "1.2.3.4");
  EXPECT_EQ(plain_address(ip::make_address("::1")).to_string(), "::1");
  EXPECT_EQ(to_lower("AZ[@az-\xC3\x84"), "az[@az-\xC3\x84");
}

}  // namespace
}  // namespace quire
