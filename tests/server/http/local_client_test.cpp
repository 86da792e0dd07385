// Tests which clients are local, through proxies and without them.
#include "server/http/local_client.h"

#include <gtest/gtest.h>

#include <boost/json/serialize.hpp>
#include <boost/json/value_from.hpp>
#include <string>
#include <vector>

namespace quire {
namespace {

namespace json = boost::json;
namespace ip = boost::asio::ip;

TEST(LocalClients, AreProvenByEveryHop) {
  struct HopCase {
    std::string peer;
    std::vector<std::string> forwarded, forwarded_for;
    bool is_local;
    std::string address;
  };
  const std::vector<std::string> trusted = {"127.0.0.1", "10.0.0.5"};
  const HopCase cases[] = {
      {"127.0.0.1", {}, {}, false, "127.0.0.1"},
      {"127.0.0.1", {}, {"127.0.0.1"}, true, "127.0.0.1"},
      {"127.0.0.1", {}, {"::1"}, true, "::/64"},
      {"127.0.0.1", {}, {"1.2.3.4"}, false, "1.2.3.4"},
      {"127.0.0.1", {}, {"1.2.3.4, 127.0.0.1"}, false, "1.2.3.4"},
      {"127.0.0.1", {}, {"1.2.3.4", "5.6.7.8"}, false, "5.6.7.8"},
      {"127.0.0.1", {}, {"junk"}, false, "127.0.0.1"},
      {"127.0.0.1", {"for=127.0.0.1"}, {}, true, "127.0.0.1"},
      {"127.0.0.1", {"proto=http; For=\"[::1]:80\""}, {}, true, "::/64"},
      {"127.0.0.1", {"for="}, {}, false, "127.0.0.1"},
      {"127.0.0.1", {"for=1.2.3.4;by=x"}, {}, false, "1.2.3.4"},
      {"127.0.0.1", {"for=1.2.3.4"}, {"127.0.0.1"}, false, "127.0.0.1"},
      {"10.0.0.5", {}, {"127.0.0.1"}, false, "127.0.0.1"},
      {"10.0.0.5", {}, {"1.2.3.4:80"}, false, "1.2.3.4"},
      {"1.2.3.4", {}, {"127.0.0.1"}, false, "1.2.3.4"},
      {"::ffff:127.0.0.1", {}, {"127.0.0.1"}, true, "127.0.0.1"},
      {"2001:db8:1:2:3:4:5:6", {}, {}, false, "2001:db8:1:2::/64"},
  };
  for (const HopCase& one : cases) {
    ClientNetworkInfo info{.peer = ip::make_address(one.peer),
                           .local = {ip::make_address("127.0.0.1"), 8000},
                           .host = "localhost:8000",
                           .forwarded = {},
                           .forwarded_for = {}};
    info.forwarded = one.forwarded;
    info.forwarded_for = one.forwarded_for;
    const std::string hops =
        one.peer + " " + json::serialize(json::value_from(one.forwarded)) + json::serialize(json::value_from(one.forwarded_for));
    EXPECT_EQ(is_local_client(info, trusted), one.is_local) << hops;
    EXPECT_EQ(client_address(info, trusted), one.address) << hops;
  }
}

TEST(LocalClients, AskWithoutAProxyUnderALoopbackNameWithThePort) {
  const ClientNetworkInfo direct{.peer = ip::make_address("127.0.0.1"),
                                 .local = {ip::make_address("127.0.0.1"), 8000},
                                 .host = "localhost:8000",
                                 .forwarded = {},
                                 .forwarded_for = {}};
  const auto is_local = [&](auto change) {
    ClientNetworkInfo info = direct;
    change(info);
    return is_local_client(info, {});
  };
  EXPECT_TRUE(is_local([](auto&) {}));
  EXPECT_TRUE(is_local([](auto& info) { info.host = "[::1]:8000"; }));
  EXPECT_FALSE(is_local([](auto& info) { info.peer = ip::make_address("10.0.0.1"); }));
  EXPECT_FALSE(is_local([](auto& info) { info.host = "localhost:8001"; }));
  EXPECT_FALSE(is_local([](auto& info) { info.host = "localhost"; }));
  EXPECT_TRUE(is_local([](auto& info) {
    info.host = "localhost";
    info.local.port(80);
  }));
  EXPECT_FALSE(is_local([](auto& info) { info.host = "example.org:8000"; }));
  EXPECT_FALSE(is_local([](auto& info) { info.host = ""; }));
  EXPECT_FALSE(is_local([](auto& info) { info.http_version = 10; }));
  EXPECT_FALSE(is_local([](auto& info) { info.has_proxy_header = true; }));
  EXPECT_FALSE(is_local([](auto& info) { info.forwarded = {"for=127.0.0.1"}; }));
  EXPECT_FALSE(is_local([](auto& info) { info.forwarded_for = {"127.0.0.1"}; }));
}

}  // namespace
}  // namespace quire
