// Tests which addresses are public: the bounds of each private network.
#include "server/http/public_address.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

namespace ip = boost::asio::ip;

TEST(PublicAddresses, EndWherePrivateNetworksBegin) {
  // The first and the last address of each private network, between their public neighbours.
  const char* const kNot[] = {"0.0.0.0",
                              "0.255.255.255",
                              "10.0.0.0",
                              "10.255.255.255",
                              "100.64.0.0",
                              "100.127.255.255",
                              "127.0.0.0",
                              "127.255.255.255",
                              "169.254.0.0",
                              "169.254.255.255",
                              "172.16.0.0",
                              "172.31.255.255",
                              "192.0.0.0",
                              "192.0.0.255",
                              "192.0.2.0",
                              "192.0.2.255",
                              "192.88.99.0",
                              "192.88.99.255",
                              "192.168.0.0",
                              "192.168.255.255",
                              "198.18.0.0",
                              "198.19.255.255",
                              "198.51.100.0",
                              "198.51.100.255",
                              "203.0.113.0",
                              "203.0.113.255",
                              "224.0.0.0",
                              "239.255.255.255",
                              "240.0.0.0",
                              "255.255.255.255",
                              "::",
                              "::1",
                              "::ffff:10.0.0.1",
                              "64:ff9b::10.0.0.1",
                              "2002:a00:1::1",
                              "1fff::1",
                              "4000::1",
                              "fe80::1",
                              "fc00::1",
                              "ff02::1",
                              "2001::1",
                              "2001:1ff::1",
                              "2001:db8::1",
                              "2001:db8:ffff::1",
                              "3fff::1",
                              "64:ff9b:1::1.1.1.1"};
  const char* const kPublic[] = {
      "1.0.0.0",         "9.255.255.255", "11.0.0.0",       "100.63.255.255",  "100.128.0.0",     "126.255.255.255", "128.0.0.0",
      "169.253.255.255", "169.255.0.0",   "172.15.255.255", "172.32.0.0",      "191.255.255.255", "192.0.1.0",       "192.0.1.255",
      "192.0.3.0",       "192.88.98.255", "192.88.100.0",   "192.167.255.255", "192.169.0.0",     "198.17.255.255",  "198.20.0.0",
      "198.51.99.255",   "198.51.101.0",  "203.0.112.255",  "203.0.114.0",     "223.255.255.255", "::ffff:8.8.8.8",  "64:ff9b::8.8.8.8",
      "2002:808:808::1", "2000::1",       "2001:200::1",    "2001:db7::1",     "2001:db9::1",     "3ffe::1",         "2600::1"};
  for (const char* text : kNot) EXPECT_FALSE(is_public_address(ip::make_address(text))) << text;
  for (const char* text : kPublic) EXPECT_TRUE(is_public_address(ip::make_address(text))) << text;
}

}  // namespace
}  // namespace quire
