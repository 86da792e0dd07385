// Tests more clients than the server has connections for: none hangs, and idle clients do not keep out active ones.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "server/http/descriptors.h"
#include "server/operate/metrics.h"
#include "server/running_server.h"
#include "support/sanitized.h"

namespace quire {
namespace {

using ConnectionsTest = RunningServer;

constexpr const char* kSanitizersNeedDescriptors =
    "UBSan looks at an object through a pipe and takes it for a broken one where none can be made";

using Clients = std::vector<std::unique_ptr<HttpClient>>;

Clients connect(std::uint16_t port, int count, std::string_view opening) {
  Clients clients;
  for (int i = 0; i < count; ++i) clients.emplace_back(std::make_unique<HttpClient>(port))->send(opening);
  return clients;
}

TEST_F(ConnectionsTest, RefusesAClientImmediatelyWhenAllConnectionsAreBusy) {
  start({.max_connections = 1, .retry_after_s = 5});
  HttpClient busy(port);
  busy.send_post("/v1/completions", R"({"prompt": "a", "stream": true})");
  ASSERT_TRUE(engine.wait_submitted(1));
  HttpClient late(port);
  const ClientResponse refused = late.receive();
  EXPECT_EQ(refused.status, 503U);
  EXPECT_EQ(refused.header("Retry-After"), "5");
  EXPECT_EQ(refused.json().at("error").at("code"), "overloaded");
  EXPECT_TRUE(late.at_end());
  engine.end(engine.at(0).id, FinishReason::stop);
  EXPECT_EQ(busy.receive().status, 200U) << "the busy connection is not disturbed";
  EXPECT_NE(busy.get("/metrics").body.find("quire:connections_refused_total{engine=\"0\",model_name=\"bytes\"} 1\n"), std::string::npos);
}

TEST_F(ConnectionsTest, ClosesTheLongestIdleConnectionFirst) {
  start({.max_connections = 2});
  HttpClient first(port), second(port);
  EXPECT_EQ(first.get("/health").status, 200U);
  EXPECT_EQ(second.get("/health").status, 200U);
  EXPECT_EQ(first.get("/health").status, 200U);  // now `second` has been idle longer
  HttpClient third(port);
  EXPECT_EQ(third.get("/health").status, 200U);
  EXPECT_TRUE(second.at_end());
  EXPECT_EQ(first.get("/health").status, 200U);
}

TEST_F(ConnectionsTest, IncompleteHeadersDoNotCloseAnIdleClient) {
  start({.max_connections = 8});
  HttpClient good(port);
  EXPECT_EQ(good.get("/health").status, 200U);
  const Clients half = connect(port, 100, "GET /health HTTP/1.1\r\nHost: loc");
  EXPECT_EQ(good.get("/health").status, 200U);
  EXPECT_EQ(HttpClient(port).get("/health").status, 200U) << "a new client is not kept out either";
}

TEST_F(ConnectionsTest, ClosesConnectionsWithoutBodiesAndAnswersTheOperator) {
  start({.api_key = "own", .tenant_keys = {{"a", "key-1"}, {"b", "key-2"}}, .max_connections = 16});
  const std::string opening =
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer key-1\r\nContent-Type: "
      "application/json\r\nContent-Length: "
      "1000\r\n\r\n{";
  const Clients holders = connect(port, 60, opening);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(HttpClient(port).get("/health").status, 200U) << i;
    EXPECT_EQ(HttpClient(port).get("/metrics", "Authorization: Bearer own\r\n").status, 200U) << i;
  }
  engine.answer_with("yes");
  EXPECT_EQ(post("/v1/completions", R"({"prompt": "a"})", "Authorization: Bearer key-2\r\n").status, 200U);
}

// 4 KiB of a body are progress, some bytes are not.
TEST_F(ConnectionsTest, ClosesTheBodyWithoutProgressFirst) {
  start({.max_connections = 3});
  HttpClient watcher(port), moving(port), stuck(port);
  const auto has_arrived = [&](std::size_t num_bytes) {
    const std::string line = "\nquire:body_bytes_in_flight{engine=\"0\",model_name=\"bytes\"} " + std::to_string(num_bytes) + "\n";
    for (int i = 0; i < 2000; ++i) {
      if (watcher.get("/metrics").body.contains(line)) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  };
  const std::string body = R"({"prompt":"a","user":")" + std::string(9000, 'u') + "\"}";
  const std::string text = HttpClient::post_text("/v1/completions", body);
  const std::size_t head = text.size() - body.size();
  moving.send(text.substr(0, head + 1));
  ASSERT_TRUE(has_arrived(1));
  stuck.send(text.substr(0, head + 1));
  ASSERT_TRUE(has_arrived(2));
  moving.send(text.substr(head + 1, 5000));
  ASSERT_TRUE(has_arrived(5002));
  stuck.send(text.substr(head + 1, 10));
  ASSERT_TRUE(has_arrived(5012));
  engine.answer_with("yes");
  EXPECT_EQ(HttpClient(port).get("/health").status, 200U) << "a new client takes the place of the body without progress";
  EXPECT_TRUE(stuck.at_end());
  moving.send(text.substr(head + 5001));
  EXPECT_EQ(moving.receive().status, 200U);
}

TEST_F(ConnectionsTest, ClosesClientsThatDoNotReadTheirAnswers) {
  start({.max_connections = 16, .send_buffer_bytes = 4096});
  std::string many;
  for (int i = 0; i < 40; ++i) many += "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n";
  Clients holders;
  for (int i = 0; i < 40; ++i) holders.emplace_back(std::make_unique<HttpClient>(port, 1024))->send(many);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(HttpClient(port).get("/health").status, 200U) << i;
}

TEST_F(ConnectionsTest, ReservesConnectionsForRequestsWithoutTheModel) {
  start({.max_connections = 32});
  const Clients waiting = connect(port, 30, HttpClient::post_text("/v1/completions", R"({"prompt": "a", "stream": true})"));
  ASSERT_TRUE(engine.wait_submitted(30));
  const Clients idle = connect(port, 2, "");
  for (int i = 0; i < 20; ++i) EXPECT_EQ(HttpClient(port).get("/health").status, 200U) << i;
  EXPECT_EQ(HttpClient(port).get("/metrics").status, 200U);
  const ClientResponse refused = post("/v1/completions", R"({"prompt": "a"})");
  EXPECT_EQ(refused.status, 429U);
  EXPECT_NE(refused.header("Retry-After"), "");
  engine.end(engine.at(0).id, FinishReason::stop);
  for (std::size_t tries = 0; tries < 1000 && engine.num_submitted() < 31; ++tries) {
    HttpClient again(port);
    again.send_post("/v1/completions", R"({"prompt": "a", "stream": true})");
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_GE(engine.num_submitted(), 31U) << "a finished answer frees a connection";
}

TEST_F(ConnectionsTest, TenantWithManyAnswersLeavesRoomForAnother) {
  start({.tenant_keys = {{"a", "key-1"}, {"b", "key-2"}}, .max_connections = 15});
  const auto ask = [](const std::string& key) {
    return HttpClient::post_text("/v1/completions", R"({"prompt": "a", "stream": true})", "Authorization: Bearer " + key + "\r\n");
  };
  const Clients of_a = connect(port, 12, ask("key-1"));
  ASSERT_TRUE(engine.wait_submitted(12));
  HttpClient more(port), other(port);
  more.send(ask("key-1"));
  EXPECT_EQ(more.receive().status, 429U);
  other.send(ask("key-2"));
  EXPECT_TRUE(engine.wait_submitted(13));
  EXPECT_EQ(HttpClient(port).get("/health").status, 200U);
}

TEST_F(ConnectionsTest, ThousandsOfIdleConnectionsCostLittleAndHealthAnswers) {
  raise_descriptor_limit();
  constexpr int kCount = 4000;
  if (fit_connections(2 * kCount + 100) < 2 * kCount + 100) GTEST_SKIP() << "the limit of open files (ulimit -Hn) is below 8,200";
  start({.max_connections = kCount + 10});
  const std::uint64_t before = resident_bytes();
  const Clients idle = connect(port, kCount, "");
  EXPECT_EQ(HttpClient(port).get("/health").status, 200U);
  // A sanitizer needs additional memory for each byte.
  const std::uint64_t most = std::uint64_t{kSanitized ? 256 : 64} << 20;
  EXPECT_LT(resident_bytes() - before, most) << "the limit is 16 KiB per connection, both ends included";
  const Clients half = connect(port, kCount, "GET /health HTTP/1.1\r\nHost: loc");
  EXPECT_EQ(HttpClient(port).get("/health").status, 200U);
}

// Takes every descriptor that the process may still open.
class NoDescriptors {
 public:
  NoDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const int next = ::dup(0);
    const rlimit low{static_cast<rlim_t>(next) + 8, before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &low);
    taken_.push_back(next);
    for (int more = ::dup(0); more >= 0; more = ::dup(0)) taken_.push_back(more);
  }
  ~NoDescriptors() {
    for (const int taken : taken_) ::close(taken);
    ::setrlimit(RLIMIT_NOFILE, &before_);
  }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
  std::vector<int> taken_;
};

TEST_F(ConnectionsTest, RefusesClientsWhenDescriptorsRunOut) {
  if (kSanitized) GTEST_SKIP() << kSanitizersNeedDescriptors;
  start();
  HttpClient busy(port);
  busy.send_post("/v1/completions", R"({"prompt": "a", "stream": true})");
  ASSERT_TRUE(engine.wait_submitted(1));
  HttpClient first, second;
  {
    const NoDescriptors none;
    first.connect_to(port);
    EXPECT_EQ(first.receive().status, 503U);
    second.connect_to(port);
    EXPECT_EQ(second.receive().status, 503U) << "a second client is refused too";
  }
  EXPECT_EQ(HttpClient(port).get("/health").status, 200U);
  engine.end(engine.at(0).id, FinishReason::stop);
  EXPECT_EQ(busy.receive().status, 200U);
}

TEST_F(ConnectionsTest, ClosesAnIdleConnectionWhenDescriptorsRunOut) {
  if (kSanitized) GTEST_SKIP() << kSanitizersNeedDescriptors;
  start();
  HttpClient idle(port);
  EXPECT_EQ(idle.get("/health").status, 200U);
  HttpClient late;
  const NoDescriptors none;
  late.connect_to(port);
  EXPECT_EQ(late.get("/health").status, 200U);
  EXPECT_TRUE(idle.at_end());
}

TEST(Descriptors, ReduceConnectionsToTheDescriptorLimit) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit low{200, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  EXPECT_LT(fit_connections(4096), 200U);
  EXPECT_GT(fit_connections(4096), 50U);
  EXPECT_EQ(fit_connections(3), 3U);
  EXPECT_LE(fit_connections(4096, 2), fit_connections(4096) / 2 + 1) << "each connection needs two descriptors";
  EXPECT_EQ(raise_descriptor_limit(), before.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &before);
}

}  // namespace
}  // namespace quire
