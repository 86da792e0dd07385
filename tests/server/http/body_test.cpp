// Bodies are read only for those who may send them, and all of them together stay within a budget.
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/http/body_budget.h"
#include "server/running_server.h"

namespace quire {
namespace {

using BodyTest = RunningServer;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// A header that announces a body, which does not come.
std::string announce(std::uint64_t bytes, const std::string& headers = {}, const std::string& path = "/v1/completions") {
  return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + headers +
         "Content-Length: " + std::to_string(bytes) + "\r\n\r\n";
}

TEST(BodyBudget, LargeBodiesLeaveRoomForSmallOnes) {
  BodyBudget budget(8 * kMiB);
  BodyBudget::Lease large(budget), larger(budget);
  EXPECT_TRUE(large.grow_to(7 * kMiB));
  EXPECT_FALSE(larger.grow_to(kMiB));
  EXPECT_EQ(budget.used_bytes(), 7 * kMiB);
  std::vector<std::unique_ptr<BodyBudget::Lease>> small;
  for (int i = 0; i < 16; ++i)
    EXPECT_TRUE(small.emplace_back(std::make_unique<BodyBudget::Lease>(budget))->grow_to(BodyBudget::kSmallBodyBytes));
  EXPECT_FALSE(BodyBudget::Lease(budget).grow_to(1)) << "then it is full";
  small.clear();
  EXPECT_EQ(budget.used_bytes(), 7 * kMiB);
}

TEST(BodyBudget, ALeaseThatCannotGrowHoldsWhatItHeld) {
  BodyBudget budget(kMiB);
  {
    BodyBudget::Lease lease(budget);
    EXPECT_TRUE(lease.grow_to(1000));
    EXPECT_TRUE(lease.grow_to(10)) << "it does not shrink";
    EXPECT_FALSE(lease.grow_to(2 * kMiB));
    EXPECT_FALSE(lease.grow_to(~std::uint64_t{0}));
    EXPECT_EQ(budget.used_bytes(), 1000U);
  }
  EXPECT_EQ(budget.used_bytes(), 0U);
}

TEST_F(BodyTest, WhoMayNotIsToldWithoutItsBody) {
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

TEST_F(BodyTest, WhoMayNotIsNotToldToContinue) {
  start({.api_key = "secret"});
  HttpClient client(port);
  client.send(announce(1000, "Expect: 100-continue\r\n"));
  EXPECT_EQ(client.receive().status, 401U);
  EXPECT_TRUE(client.at_end()) << "what comes next could be the body";
}

TEST_F(BodyTest, BeyondTheBudgetBodiesAreRefusedUnreadAndSmallOnesGoOn) {
  engine.answer_with("yes");
  start({.max_body_bytes = kMiB, .max_body_bytes_in_flight = 2 * kMiB, .retry_after_s = 7});
  HttpClient first(port);
  first.send(announce(kMiB, "Expect: 100-continue\r\n"));
  ClientResponse interim;
  ASSERT_TRUE(first.receive_head(interim));
  EXPECT_EQ(interim.status, 100U);
  HttpClient second(port);
  second.send(announce(kMiB));
  const ClientResponse refused = second.receive();
  EXPECT_EQ(refused.status, 503U);
  EXPECT_EQ(refused.header("Retry-After"), "7");
  EXPECT_EQ(refused.json().at("error").at("code"), "overloaded");
  EXPECT_EQ(post("/v1/completions", R"({"prompt": "a"})").status, 200U);
  first.send(R"({"prompt": "a")" + std::string(kMiB - 15, ' ') + "}");
  EXPECT_EQ(first.receive().status, 200U);
  HttpClient third(port);
  third.send(announce(kMiB, "Expect: 100-continue\r\n"));
  ASSERT_TRUE(third.receive_head(interim));
  EXPECT_EQ(interim.status, 100U) << "the first one's share is back";
}

TEST_F(BodyTest, AnAnswerUnderWayHoldsNoBody) {
  start({.max_body_bytes = kMiB, .max_body_bytes_in_flight = 2 * kMiB});
  const std::string body = R"({"prompt": "a", "stream": true)" + std::string(kMiB - 100, ' ') + "}";
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(std::make_unique<HttpClient>(port));
    clients.back()->send_post("/v1/completions", body);
    ASSERT_TRUE(engine.wait_submitted(static_cast<std::size_t>(i) + 1));
  }
}

TEST_F(BodyTest, AClientThatLeavesGivesItsShareBack) {
  start({.max_body_bytes = kMiB, .max_body_bytes_in_flight = 2 * kMiB});
  for (int i = 0; i < 8; ++i) {
    HttpClient client(port);
    client.send(announce(kMiB, "Expect: 100-continue\r\n"));
    ClientResponse interim;
    ASSERT_TRUE(client.receive_head(interim));
    EXPECT_EQ(interim.status, 100U) << i;
    client.close();
    while (HttpClient(port).get("/metrics").body.find("quire:connections{engine=\"0\",model_name=\"bytes\"} 1\n") == std::string::npos) {
    }
  }
}

TEST_F(BodyTest, ChunkedBodiesPayAsTheyCome) {
  start({.max_body_bytes = kMiB, .max_body_bytes_in_flight = 2 * kMiB});
  HttpClient first(port);
  first.send(announce(kMiB, "Expect: 100-continue\r\n"));
  ClientResponse interim;
  ASSERT_TRUE(first.receive_head(interim));
  HttpClient chunked(port);
  chunked.send("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n");
  const std::string piece(32 << 10, ' ');
  // Each by itself: the server may well read them one by one, at whose ends the parser only wants more.
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

TEST(ServerOptions, LimitsHaveBoundsOnBothSides) {
  const auto field = [](const ServerOptions& options) { return options.validate().error().field; };
  EXPECT_EQ(field({.max_body_bytes = 1024 * kMiB, .max_body_bytes_in_flight = 4096 * kMiB}), "max_body_bytes");
  EXPECT_EQ(field({.max_body_bytes = 64 * kMiB, .max_body_bytes_in_flight = 100 * kMiB}), "max_body_bytes_in_flight");
  EXPECT_EQ(field({.max_header_bytes = 4 << 20}), "max_header_bytes");
  EXPECT_EQ(field({.max_connections = 0}), "max_connections");
}

}  // namespace
}  // namespace quire
