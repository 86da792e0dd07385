// Tests that the server reads bodies only from authorized clients, and that all bodies together stay within a budget.
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/http/body_budget.h"
#include "server/running_server.h"

namespace quire {
namespace {

class BodyTest : public RunningServer {
 protected:
  // Returns the metric's value in /metrics.
  [[nodiscard]] double metric(const std::string& name) const {
    const std::string text = HttpClient(port).get("/metrics").body;
    const std::size_t at = text.find("\n" + name + "{");
    return at == std::string::npos ? -1 : std::strtod(text.c_str() + text.find(' ', text.find('}', at)), nullptr);
  }
};

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// Returns a header that announces a body which the test does not send.
std::string announce(std::uint64_t bytes, const std::string& headers = {}, const std::string& path = "/v1/completions") {
  return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + headers +
         "Content-Length: " + std::to_string(bytes) + "\r\n\r\n";
}

using BodyLease = BodyBudget::Lease;
using PaceClock = BodyPace::Clock;
using namespace std::chrono_literals;

TEST(BodyBudget, LargeBodiesLeaveRoomForSmallOnes) {
  BodyBudget budget(8 * kMiB);
  BodyLease large(budget), larger(budget);
  EXPECT_TRUE(large.grow_to(7 * kMiB));
  EXPECT_FALSE(larger.grow_to(kMiB));
  EXPECT_EQ(budget.used_bytes(), 7 * kMiB);
  std::vector<std::unique_ptr<BodyLease>> small;
  for (int i = 0; i < 16; ++i) EXPECT_TRUE(small.emplace_back(std::make_unique<BodyLease>(budget))->grow_to(BodyBudget::kSmallBodyBytes));
  EXPECT_FALSE(BodyLease(budget).grow_to(1)) << "the budget is full";
  small.clear();
  EXPECT_EQ(budget.used_bytes(), 7 * kMiB);
}

TEST(BodyBudget, LeaseKeepsItsBytesWhenItCannotGrow) {
  BodyBudget budget(kMiB);
  {
    BodyLease lease(budget);
    EXPECT_TRUE(lease.grow_to(1000));
    EXPECT_TRUE(lease.grow_to(10)) << "a lease does not shrink";
    EXPECT_FALSE(lease.grow_to(2 * kMiB));
    EXPECT_FALSE(lease.grow_to(~std::uint64_t{0}));
    EXPECT_EQ(budget.used_bytes(), 1000U);
  }
  EXPECT_EQ(budget.used_bytes(), 0U);
}

TEST(BodyBudget, AClientWithManyBodiesLeavesRoomForOthers) {
  BodyBudget budget(64 * kMiB);
  std::vector<std::unique_ptr<BodyLease>> leases;
  // The leases grow in pieces, as bodies arrive.
  const auto fill = [&](const std::string& client, std::uint64_t each) {
    std::uint64_t held = 0;
    while (true) {
      BodyLease& lease = *leases.emplace_back(std::make_unique<BodyLease>(budget, budget.share_of(client)));
      for (std::uint64_t size = 0; size < each; size += 16 << 10)
        if (!lease.grow_to(size + (16 << 10))) return held;
      held += each;
    }
  };
  EXPECT_LE(fill("a", 8 * kMiB), 48 * kMiB);
  EXPECT_GE(fill("b", 8 * kMiB), 8 * kMiB);
  EXPECT_LE(fill("a", 64 << 10), 8 * kMiB) << "small bodies count too";
  EXPECT_GT(fill("c", 64 << 10), kMiB) << "another client finds room";
}

TEST(BodyBudget, ClientWithOneBodyIsLimitedOnlyByFreeBytes) {
  BodyBudget budget(2 * kMiB);
  BodyLease a(budget, budget.share_of("a"));
  EXPECT_TRUE(a.grow_to(kMiB));
  EXPECT_TRUE(BodyLease(budget, budget.share_of("b")).grow_to(kMiB / 2));
  EXPECT_FALSE(BodyLease(budget, budget.share_of("a")).grow_to(kMiB));
}

TEST(BodyPace, EndsWhenTheRateIsTooLow) {
  const PaceClock::time_point start{};
  BodyPace pace(1000, 5s, start);
  EXPECT_EQ(pace.ends(), start + 5s);
  pace.add(1'000'000, start + 1s);
  EXPECT_EQ(pace.ends(), start + 6s) << "a burst gains at most the grace time";
  for (int second = 2; second < 6; ++second) pace.add(10, start + second * 1s);
  EXPECT_EQ(pace.ends(), start + 6s + 40ms);
  for (int second = 6; second < 100; ++second) pace.add(1000, start + second * 1s);
  EXPECT_GT(pace.ends(), start + 99s) << "a body at the minimum rate continues";
  EXPECT_EQ(BodyPace(0, 5s, start).ends(), PaceClock::time_point::max());
}

TEST(BodyReaders, SlowBodiesOfClientsThatHoldMoreAreCut) {
  const PaceClock::time_point start{};
  BodyBudget budget(8 * kMiB);
  BodyReaders readers;
  std::string cut;
  BodyLease slow(budget, budget.share_of("a")), fast(budget, budget.share_of("a")), late(budget, budget.share_of("b"));
  BodyPace slow_pace(1000, 5s, start), fast_pace(1000, 5s, start), late_pace(1000, 5s, start + 4s);
  const BodyReaders::Entry first(readers, {slow, slow_pace, [&] { cut += "slow "; }});
  const BodyReaders::Entry second(readers, {fast, fast_pace, [&] { cut += "fast "; }});
  const BodyReaders::Entry third(readers, {late, late_pace, [&] { cut += "late "; }});
  EXPECT_TRUE(readers.grow(slow, 2 * kMiB, start));
  EXPECT_TRUE(readers.grow(fast, 4 * kMiB, start));
  fast_pace.add(4 * kMiB, start + 4s);
  EXPECT_TRUE(readers.grow(late, 2 * kMiB, start + 4s));
  EXPECT_EQ(cut, "slow ");
  EXPECT_EQ(slow.bytes(), 0U);
  EXPECT_FALSE(readers.grow(late, 4 * kMiB, start + 4s)) << "the other body keeps the rate";
  EXPECT_EQ(cut, "slow ");
}

TEST(BodyReaders, ClientThatHoldsLessIsNotCut) {
  const PaceClock::time_point start{};
  BodyBudget budget(8 * kMiB);
  BodyReaders readers;
  BodyLease small(budget, budget.share_of("a")), first(budget, budget.share_of("b")), next(budget, budget.share_of("b"));
  BodyPace slow(1000, 5s, start), quick(1000, 5s, start + 4s);
  const BodyReaders::Entry entry(readers, {small, slow, [] { FAIL(); }});
  ASSERT_TRUE(small.grow_to(kMiB));
  ASSERT_TRUE(first.grow_to(5 * kMiB));
  EXPECT_FALSE(readers.grow(next, 3 * kMiB, start + 4s));
}

TEST_F(BodyTest, UnauthorizedClientIsRefusedBeforeItsBody) {
  start({.api_key = "secret", .max_body_bytes = kMiB});
  const std::string key = "Authorization: Bearer secret\r\n";
  const auto status = [&](const std::string& header) {
    HttpClient client(port);
    client.send(header);
    return client.receive().status;
  };
  EXPECT_EQ(status(announce(1000)), 401U);
  EXPECT_EQ(status(announce(1000, "Authorization: Bearer wrong\r\n")), 401U);
  EXPECT_EQ(status(announce(1000, key, "/v1/nothing")), 404U);
  EXPECT_EQ(status(announce(1000, key, "/health")), 405U);
  EXPECT_EQ(status(announce(2 * kMiB, key)), 413U);
  EXPECT_EQ(status(announce(~std::uint64_t{0}, key)), 413U);
  EXPECT_EQ(status(announce(1000, key + "X-Forwarded-For: 192.0.2.1\r\n", "/pause")), 403U);
}

TEST_F(BodyTest, UnauthorizedClientGetsNoContinue) {
  start({.api_key = "secret"});
  HttpClient client(port);
  client.send(announce(1000, "Expect: 100-continue\r\n"));
  EXPECT_EQ(client.receive().status, 401U);
  EXPECT_TRUE(client.at_end()) << "following bytes could be the body";
}

TEST_F(BodyTest, AnnouncedBodiesThatDoNotArriveTakeNoBudget) {
  engine.answer_with("yes");
  start({.max_body_bytes = kMiB, .max_body_bytes_in_flight = 2 * kMiB});
  const std::string chunked =
      "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
  std::vector<std::unique_ptr<HttpClient>> holders;
  const auto hold = [&](int count, const std::string& opening) {
    for (int i = 0; i < count; ++i) holders.emplace_back(std::make_unique<HttpClient>(port))->send(opening);
  };
  hold(8, announce(kMiB));
  hold(60, announce(64 << 10));
  hold(60, announce(10) + R"({"pro)");
  hold(20, chunked);
  hold(20, chunked + "fffff\r\n{");
  HttpClient known(port);
  known.send(announce(kMiB, "Expect: 100-continue\r\n"));
  ClientResponse interim;
  ASSERT_TRUE(known.receive_head(interim));
  EXPECT_EQ(interim.status, 100U);
  EXPECT_EQ(post("/v1/completions", R"({"prompt": "a"})").status, 200U);
  EXPECT_EQ(post("/v1/completions", R"({"prompt": "a")" + std::string(kMiB - 100, ' ') + "}").status, 200U);
}

TEST_F(BodyTest, RefusesLargeBodiesOverTheBudgetAndAcceptsSmallOnes) {
  engine.answer_with("yes");
  start({.max_body_bytes = kMiB, .max_body_bytes_in_flight = 2 * kMiB, .body_grace_ms = 600'000, .retry_after_s = 7});
  // The test sends the body without its last byte.
  const std::string body = R"({"prompt": "a")" + std::string(kMiB - 15, ' ') + "}";
  HttpClient first(port);
  first.send(announce(body.size()) + body.substr(0, body.size() - 1));
  while (metric("quire:body_bytes_in_flight") < static_cast<double>(kMiB - 1)) {
  }
  HttpClient second(port);
  second.send(announce(body.size()) + body.substr(0, body.size() - 1));
  const ClientResponse refused = second.receive();
  EXPECT_EQ(refused.status, 503U);
  EXPECT_EQ(refused.header("Retry-After"), "7");
  EXPECT_EQ(refused.json().at("error").at("code"), "overloaded");
  EXPECT_EQ(post("/v1/completions", R"({"prompt": "a"})").status, 200U);
  first.send(body.substr(body.size() - 1));
  EXPECT_EQ(first.receive().status, 200U);
  EXPECT_EQ(post("/v1/completions", body).status, 200U) << "the first body's bytes are returned";
}

TEST_F(BodyTest, SlowBodyIsCut) {
  start({.min_body_rate = 1 << 20, .body_grace_ms = 50});
  HttpClient client(port);
  client.send(announce(1000) + R"({"prompt")");
  EXPECT_TRUE(client.at_end());
}

TEST_F(BodyTest, SlowBodyThatIsCutGetsAnError) {
  engine.answer_with("yes");
  start({.max_body_bytes = kMiB, .max_body_bytes_in_flight = 2 * kMiB, .min_body_rate = 1, .body_grace_ms = 2000});
  const std::string body = R"({"prompt": "a")" + std::string(kMiB - 15, ' ') + "}";
  HttpClient slow(port);
  slow.send(announce(body.size()) + body.substr(0, body.size() - 1));
  while (metric("quire:body_bytes_in_flight") < static_cast<double>(kMiB - 1)) {
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // slightly more than a fifth of the grace time
  EXPECT_EQ(post("/v1/completions", body).status, 200U);
  const ClientResponse told = slow.receive();
  EXPECT_TRUE(told.status == 408U || told.status == 0U) << told.status;
}

TEST_F(BodyTest, RunningAnswerHoldsNoBody) {
  start({.max_body_bytes = kMiB, .max_body_bytes_in_flight = 2 * kMiB});
  const std::string body = R"({"prompt": "a", "stream": true)" + std::string(kMiB - 100, ' ') + "}";
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(std::make_unique<HttpClient>(port));
    clients.back()->send_post("/v1/completions", body);
    ASSERT_TRUE(engine.wait_submitted(static_cast<std::size_t>(i) + 1));
  }
}

TEST_F(BodyTest, DisconnectReturnsTheBytesOfTheBody) {
  start({.max_body_bytes = kMiB, .max_body_bytes_in_flight = 2 * kMiB});
  for (int i = 0; i < 8; ++i) {
    HttpClient client(port);
    client.send(announce(kMiB) + std::string(kMiB - 1, ' '));
    while (metric("quire:body_bytes_in_flight") < static_cast<double>(kMiB - 1)) {
    }
    client.close();
    while (metric("quire:body_bytes_in_flight") > 0) {
    }
  }
}

TEST_F(BodyTest, ChunkedBodiesAreChargedAsTheyArrive) {
  start({.max_body_bytes = kMiB, .max_body_bytes_in_flight = 2 * kMiB, .body_grace_ms = 600'000});
  HttpClient first(port);
  first.send(announce(kMiB) + std::string(kMiB - 1, ' '));
  while (metric("quire:body_bytes_in_flight") < static_cast<double>(kMiB - 1)) {
  }
  HttpClient chunked(port);
  chunked.send("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n");
  const std::string piece(32 << 10, ' ');
  // Chunks are sent separately: the server may read them one by one, and then the parser only asks for more.
  for (int i = 0; i < 30; ++i) {
    chunked.send("8000\r\n" + piece + "\r\n");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(chunked.receive().status, 503U);
  HttpClient small(port);
  small.send(
      "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
      "8\r\n{\"prompt\r\n7\r\n\": \"ab\"\r\n1\r\n}\r\n0\r\n\r\n");
  EXPECT_EQ(small.receive().json().at("count"), 2);
}

TEST(ServerOptions, LimitsHaveLowerAndUpperBounds) {
  const auto field = [](const ServerOptions& options) { return options.validate().error().field; };
  EXPECT_EQ(field({.max_body_bytes = 1024 * kMiB, .max_body_bytes_in_flight = 4096 * kMiB}), "max_body_bytes");
  EXPECT_EQ(field({.max_body_bytes = 64 * kMiB, .max_body_bytes_in_flight = 100 * kMiB}), "max_body_bytes_in_flight");
  EXPECT_EQ(field({.max_header_bytes = 4 << 20}), "max_header_bytes");
  EXPECT_EQ(field({.max_connections = 0}), "max_connections");
}

}  // namespace
}  // namespace quire
