// Tests requests and their repetition against a host whose answers are prepared.
#include "hub/http_client.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <mutex>
#include <thread>

#include "hub/patient_get.h"
#include "support/loopback_socket.h"

namespace quire {
namespace {

// Answers one connection after the other with the given bytes, and closes it. Records the requests.
class PreparedHost {
 public:
  explicit PreparedHost(std::vector<std::string> answers) {
    port_ = test::listen_on_loopback(descriptor_, 8);
    thread_ = std::thread([this, answers = std::move(answers)] { serve(answers); });
  }
  ~PreparedHost() {
    shutdown(descriptor_, SHUT_RDWR);
    close(descriptor_);
    thread_.join();
  }
  PreparedHost(const PreparedHost&) = delete;
  PreparedHost& operator=(const PreparedHost&) = delete;

  [[nodiscard]] std::string url() const { return fmt::format("http://127.0.0.1:{}", port_); }
  [[nodiscard]] std::vector<std::string> requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  void serve(const std::vector<std::string>& answers) {
    for (const std::string& answer : answers) {
      const int accepted = accept(descriptor_, nullptr, nullptr);
      if (accepted < 0) return;
      std::string request;
      std::array<char, 4096> part{};
      for (ssize_t count = 1; count > 0 && !request.ends_with("\r\n\r\n");)
        if (count = recv(accepted, part.data(), part.size(), 0); count > 0) request.append(part.data(), static_cast<std::size_t>(count));
      {
        const std::lock_guard lock(mutex_);
        requests_.push_back(request);
      }
      send(accepted, answer.data(), answer.size(), MSG_NOSIGNAL);
      close(accepted);
    }
  }

  const int descriptor_ = socket(AF_INET, SOCK_STREAM, 0);
  std::uint16_t port_ = 0;
  std::mutex mutex_;
  std::vector<std::string> requests_;
  std::thread thread_;
};

std::string answer_of(const std::string& status, const std::string& headers, const std::string& body) {
  return fmt::format("HTTP/1.1 {}\r\nContent-Length: {}\r\n{}\r\n{}", status, body.size(), headers, body);
}

struct Received {
  std::string body{};
  std::vector<std::string> lines{};
  std::vector<std::int64_t> waits_s{};
  HttpSink sink{.begin = [](const HttpHead&) -> Result<void> { return {}; },
                .take = [this](std::span<const std::byte> bytes) -> Result<void> {
                  body.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
                  return {};
                }};
  HubHooks hooks{.say = [this](const std::string& line) { lines.push_back(line); },
                 .progress = [](const std::string&, double) {},
                 .wait = [this](std::chrono::seconds time) { waits_s.push_back(time.count()); }};
};

TEST(HttpClient, ReadsTheBodyAndTheHeaders) {
  PreparedHost host({answer_of("206 Partial Content", "ETag: \"e\"\r\nContent-Range: bytes 5-9/10\r\nLink: <x>\r\n", "hello")});
  HttpClient client;
  Received received;
  const auto head = client.get({.url = host.url() + "/a%20b?c=d", .first_byte = 5, .if_range = "\"e\""}, received.sink);
  ASSERT_TRUE(head) << head.error().to_string();
  EXPECT_EQ(head->status, 206U);
  EXPECT_EQ(head->etag, "\"e\"");
  EXPECT_EQ(head->first_byte, 5U);
  EXPECT_EQ(head->total_bytes, 10U);
  EXPECT_EQ(head->content_length, 5U);
  EXPECT_EQ(received.body, "hello");
  const std::string request = host.requests().at(0);
  EXPECT_TRUE(request.starts_with("GET /a%20b?c=d HTTP/1.1\r\n")) << request;
  EXPECT_NE(request.find("Range: bytes=5-\r\n"), std::string::npos);
  EXPECT_NE(request.find("If-Range: \"e\"\r\n"), std::string::npos);
}

TEST(HttpClient, SendsTheTokenOnlyToItsOrigin) {
  PreparedHost other({answer_of("200 OK", "", "file")});
  PreparedHost hub({answer_of("302 Found", fmt::format("Location: /again\r\n"), ""),
                    answer_of("302 Found", fmt::format("Location: {}/file?a=b|c\r\n", other.url()), "")});
  HttpClient client;
  Received received;
  const auto head = client.get({.url = hub.url() + "/x", .token = "secret", .token_url = hub.url()}, received.sink);
  ASSERT_TRUE(head) << head.error().to_string();
  EXPECT_EQ(received.body, "file");
  for (const std::string& request : hub.requests()) EXPECT_NE(request.find("Authorization: Bearer secret\r\n"), std::string::npos);
  ASSERT_EQ(other.requests().size(), 1U);
  EXPECT_EQ(other.requests()[0].find("secret"), std::string::npos);
  EXPECT_TRUE(other.requests()[0].starts_with("GET /file?a=b%7Cc ")) << "bytes that a URL may not contain are escaped";
}

TEST(HttpClient, RefusesUrlsThatItDoesNotSupport) {
  HttpClient client;
  Received received;
  for (const char* url :
       {"ftp://h/x", "h/x", "", "http://", "http://user:pass@h/", "http://h:0/", "http://h:99999/", "file:///etc/passwd"}) {
    const auto head = client.get({.url = url}, received.sink);
    ASSERT_FALSE(head) << url;
    EXPECT_EQ(head.error().code, ErrorCode::invalid_argument) << url;
  }
}

TEST(HttpClient, ReturnsErrorsOfTheSink) {
  PreparedHost host({answer_of("200 OK", "", "hello")});
  HttpClient client;
  const HttpSink refusing{.begin = [](const HttpHead&) -> Result<void> { return fail(ErrorCode::io, "disk", "is full"); }, .take = {}};
  EXPECT_EQ(client.get({.url = host.url()}, refusing).error().field, "disk");
}

TEST(HttpClient, ReportsABodyThatEndsEarly) {
  PreparedHost host({"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello",
                     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "garbage"});
  HttpClient client;
  for (int i = 0; i < 3; ++i) {
    Received received;
    const auto head = client.get({.url = host.url()}, received.sink);
    ASSERT_FALSE(head);
    EXPECT_EQ(head.error().code, ErrorCode::unavailable);
    EXPECT_EQ(received.body, i < 2 ? "hello" : "");
  }
}

TEST(HttpClient, ResolvesReferences) {
  EXPECT_EQ(resolve_url("http://h/a/b?c", "/d?e").value_or(""), "http://h/d?e");
  EXPECT_EQ(resolve_url("http://h/a/b?c", "http://i/d").value_or(""), "http://i/d");
  EXPECT_FALSE(resolve_url("https://h/a", "http://h/b")) << "from https to http";
  EXPECT_EQ(escape_path("a b/ü?#%.gguf"), "a%20b/%C3%BC%3F%23%25.gguf");
}

TEST(PatientGet, WaitsLongerAfterEachFailureAndGivesUp) {
  const std::string busy = answer_of("503 Service Unavailable", "", "");
  PreparedHost host({busy, busy, busy, busy, busy});
  HttpClient client;
  Received received;
  const auto head = get_patiently(client, [&] { return HttpGet{.url = host.url()}; }, received.sink, received.hooks);
  ASSERT_TRUE(head);
  EXPECT_EQ(head->status, 503U);
  EXPECT_EQ(received.waits_s, (std::vector<std::int64_t>{1, 2, 4})) << "the first try is repeated immediately";
  EXPECT_EQ(received.lines.size(), 4U);
}

TEST(PatientGet, WaitsAsLongAsTheHostAsksFor) {
  PreparedHost host({answer_of("429 Too Many Requests", "Retry-After: 30\r\n", ""), answer_of("200 OK", "", "hello")});
  HttpClient client;
  Received received;
  ASSERT_TRUE(get_patiently(client, [&] { return HttpGet{.url = host.url()}; }, received.sink, received.hooks));
  EXPECT_EQ(received.waits_s, std::vector<std::int64_t>{30});
  EXPECT_EQ(received.body, "hello");
}

TEST(PatientGet, DoesNotWaitForHours) {
  PreparedHost host({answer_of("429 Too Many Requests", "Retry-After: 3600\r\n", "")});
  HttpClient client;
  Received received;
  const auto head = get_patiently(client, [&] { return HttpGet{.url = host.url()}; }, received.sink, received.hooks);
  ASSERT_FALSE(head);
  EXPECT_EQ(head.error().code, ErrorCode::overloaded);
  EXPECT_TRUE(received.waits_s.empty());
}

TEST(PatientGet, DoesNotRepeatARefusal) {
  PreparedHost host({answer_of("404 Not Found", "X-Error-Code: RepoNotFound\r\n", "")});
  HttpClient client;
  Received received;
  const auto head = get_patiently(client, [&] { return HttpGet{.url = host.url()}; }, received.sink, received.hooks);
  ASSERT_TRUE(head);
  EXPECT_EQ(head->error_code, "RepoNotFound");
  EXPECT_TRUE(received.lines.empty());
}

}  // namespace
}  // namespace quire
