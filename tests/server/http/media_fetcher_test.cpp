// Tests what the fetcher loads and refuses: hosts, redirects, addresses, time and size.
#include "server/http/media_fetcher.h"

#include <gtest/gtest.h>

#include <span>
#include <string>

#include "server/http/picture_host.h"
#include "server/http/public_address.h"

namespace quire {
namespace {

constexpr std::uint64_t kMostFetched = 100'000;

class FetchedMedia : public ::testing::Test {
 protected:
  static MediaFetcher::Options options(const std::vector<std::string>& domains,
                                       std::chrono::milliseconds timeout = std::chrono::seconds(30)) {
    return {.domains = parse_media_domains(domains).value(), .max_bytes = kMostFetched, .timeout = timeout};
  }
  static std::string text_of(const Result<std::vector<std::byte>>& fetched) {
    if (!fetched) return fetched.error().to_string();
    return {reinterpret_cast<const char*>(fetched->data()), fetched->size()};
  }
  static std::string fetch(const MediaFetcher& fetcher, const std::string& url) {
    MediaFetcher::Budget budget;
    return text_of(fetcher.fetch(url, budget));
  }
  static bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

  PictureHost host_{"a picture"};
  PictureHost other_{"another one"};
  MediaFetcher fetcher_{options({"127.0.0.1"})};
};

TEST_F(FetchedMedia, ComesOnlyFromAllowedHosts) {
  EXPECT_EQ(fetch(fetcher_, host_.at("/cat")), "a picture");
  EXPECT_EQ(fetch(fetcher_, host_.at("/cat") + "#part"), "a picture");
  for (const char* url : {"http://example.org/cat", "http://127.0.0.2/cat", "http://localhost/cat", "http://[::1]/cat",
                          "http://2130706433/cat", "http://0x7f.1/"})
    EXPECT_TRUE(says(fetch(fetcher_, url), "may not fetch from")) << fetch(fetcher_, url);
  for (const char* url : {"http://", "http:///cat", "http://127.0.0.1@evil.example/", "http://127.0.0.1:99999999/", "http://127.0.0.1:0/",
                          "http://127.0.0.1:65616/", "https://127.0.0.1.example.org/", "http://a b/"})
    EXPECT_TRUE(says(fetch(fetcher_, url), "is not a supported URL")) << fetch(fetcher_, url);
  // A name matches in any case. localhost and the loopback addresses must be allowed separately.
  const MediaFetcher local(options({"LocalHost"}));
  EXPECT_EQ(fetch(local, host_.at("/cat", "localhost")), "a picture");
  EXPECT_TRUE(says(fetch(local, host_.at("/cat")), "is at 127.0.0.1, which this server may not fetch from"));
  EXPECT_EQ(host_.num_asked(), 3U);
}

// The system reads these names as 127.0.0.1 without asking a name server.
TEST_F(FetchedMedia, NameOfAPrivateAddressDoesNotAllowTheAddress) {
  for (const char* name : {"0x7f.1", "2130706433"}) {
    const MediaFetcher named(options({name}));
    EXPECT_EQ(fetch(named, host_.at("/cat", name)),
              "could not be fetched from " + std::string(name) +
                  ": all its addresses are private, and none is listed in --allowed-media-domains; send the URL of an image, or send the "
                  "image itself as data:image/png;base64,...");
    const MediaFetcher both(options({name, "127.0.0.1"}));
    EXPECT_EQ(fetch(both, host_.at("/cat", name)), "a picture");
  }
  EXPECT_EQ(host_.num_asked(), 2U);
}

TEST_F(FetchedMedia, FollowsAFewRedirectsToAllowedHosts) {
  EXPECT_EQ(fetch(fetcher_, host_.at("/hop/3")), "a picture");
  EXPECT_TRUE(says(fetch(fetcher_, host_.at("/hop/4")), "redirects more than 3 times"));
  EXPECT_EQ(fetch(fetcher_, host_.at("/to/" + other_.at("/cat"))), "another one");
  const unsigned asked = other_.num_asked();
  EXPECT_TRUE(says(fetch(fetcher_, host_.at("/to/" + other_.at("/cat", "localhost"))),
                   "redirects to localhost, which this server may not fetch from"));
  for (const char* url : {"file:///etc/passwd", "ftp://127.0.0.1/cat", "http://user@127.0.0.1/"})
    EXPECT_TRUE(says(fetch(fetcher_, host_.at("/to/" + std::string(url))), "redirects to an unsupported URL")) << url;
  EXPECT_EQ(other_.num_asked(), asked);
}

TEST_F(FetchedMedia, IsBoundedInBytesWhateverTheHostAnnounces) {
  for (const char* path : {"/huge", "/endless"}) {
    MediaFetcher::Budget budget;
    const auto fetched = fetcher_.fetch(host_.at(path), budget);
    ASSERT_FALSE(fetched.has_value());
    EXPECT_EQ(fetched.error().code, ErrorCode::too_large) << path;
    EXPECT_TRUE(says(fetched.error().to_string(), "--max-media-bytes"));
  }
  // The limit covers all images of a request.
  MediaFetcher::Budget budget{.deadline = {}, .num_bytes = kMostFetched - 12};
  EXPECT_EQ(text_of(fetcher_.fetch(host_.at("/cat"), budget)), "a picture");
  EXPECT_EQ(budget.num_bytes, kMostFetched - 3);
  EXPECT_EQ(fetcher_.fetch(host_.at("/cat"), budget).error().code, ErrorCode::too_large);
}

TEST_F(FetchedMedia, IsBoundedInTimePerRequest) {
  const MediaFetcher hasty(options({"127.0.0.1"}, std::chrono::milliseconds(50)));
  MediaFetcher::Budget budget;
  EXPECT_TRUE(
      says(text_of(hasty.fetch(host_.at("/slow"), budget)), "could not be fetched from 127.0.0.1: no answer within the time limit"));
  // The time limit has also passed for the other images of the request.
  EXPECT_TRUE(says(text_of(hasty.fetch(host_.at("/cat"), budget)), "no answer within the time limit"));
}

TEST_F(FetchedMedia, ReportsTheHostsError) {
  EXPECT_TRUE(says(fetch(fetcher_, host_.at("/gone")), "could not be fetched from 127.0.0.1: it answers with status 404"));
  // The host does not support TLS.
  const std::string secret = "https://127.0.0.1:" + host_.port() + "/cat";
  const MediaFetcher hasty(options({"127.0.0.1"}, std::chrono::milliseconds(200)));
  EXPECT_TRUE(says(fetch(hasty, secret), "could not be fetched from 127.0.0.1: "));
}

TEST(MediaDomains, AreHostNamesWithoutPortOrPath) {
  for (const char* wrong :
       {"https://example.org", "example.org:443", "*.example.org", "*", "", "a b", "example.org/cat", "127.0.0.1.example.org"})
    EXPECT_EQ(parse_media_domains({wrong}).error().field, "allowed_media_domains") << wrong;
  EXPECT_EQ(parse_media_domains({"Example.ORG", "10.0.0.1", "[::1]"}).value().front().name, "example.org");
}

TEST(PublicAddress, ExcludesPrivateNetworks) {
  const auto is_public = [](const char* address) { return is_public_address(boost::asio::ip::make_address(address)); };
  for (const char* address : {"0.0.0.0",
                              "10.1.2.3",
                              "100.64.0.1",
                              "100.127.255.255",
                              "127.0.0.1",
                              "169.254.169.254",
                              "172.16.0.1",
                              "172.31.255.255",
                              "192.168.1.1",
                              "198.18.0.1",
                              "224.0.0.1",
                              "255.255.255.255",
                              "::",
                              "::1",
                              "fe80::1",
                              "fd00::1",
                              "ff02::1",
                              "::ffff:10.0.0.1",
                              "64:ff9b::7f00:1",
                              "2002:a00:1::",
                              "2001::1",
                              "2001:db8::1"})
    EXPECT_FALSE(is_public(address)) << address;
  for (const char* address : {"1.1.1.1", "100.63.255.255", "100.128.0.1", "172.15.0.1", "172.32.0.1", "198.20.0.1", "223.255.255.255",
                              "2606:4700::1111", "2001:4860:4860::8888", "::ffff:1.1.1.1", "64:ff9b::101:101", "2002:101:101::"})
    EXPECT_TRUE(is_public(address)) << address;
}

TEST(MediaDomainErrors, NameTheDomain) {
  const auto error = [](const std::string& domain) {
    const auto hosts = parse_media_domains({domain});
    return hosts ? "accepted" : hosts.error().to_string();
  };
  for (const char* good : {"images.example.org", "IMAGES.example.org", "127.0.0.1", "[::1]", "localhost"})
    EXPECT_EQ(error(good), "accepted") << good;
  for (const char* wrong : {"", "http://a", "a:80", "a/b", "*.a", "a*", "[::1]:80", "u@a"})
    EXPECT_EQ(error(wrong), "allowed_media_domains: '" + std::string(wrong) +
                                "' is not a host name; use full host names without scheme and port, such as images.example.org");
  EXPECT_TRUE(is_web_address("http://a"));
  EXPECT_TRUE(is_web_address("https://a"));
  EXPECT_FALSE(is_web_address("ftp://a"));
  EXPECT_FALSE(is_web_address("http:/a"));
}

}  // namespace
}  // namespace quire
