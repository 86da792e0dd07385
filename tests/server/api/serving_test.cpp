// Tests that a draining server refuses requests whose bodies arrive late.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/running_server.h"

namespace quire {
namespace {

using ServingTest = RunningServer;

TEST_F(ServingTest, DrainingServerRefusesWork) {
  start();
  HttpClient open(port);
  open.send_post("/v1/completions", R"({"prompt":"one","stream":true})", "X-Request-Id: s\r\n");
  ASSERT_TRUE(engine.wait_submitted(1));
  // A request whose body is arriving is still read while the server drains.
  std::vector<std::unique_ptr<HttpClient>> clients;
  const std::pair<std::string, std::string> calls[] = {
      {"/v1/completions", R"({"prompt":"a"})"}, {"/v1/embeddings", R"({"input":"a"})"}, {"/v1/requests/cmpl-s/fork", "{}"}};
  std::size_t num_bytes = 0;
  for (const auto& [path, body] : calls) {
    clients.push_back(std::make_unique<HttpClient>(port));
    const std::string text = HttpClient::post_text(path, body);
    clients.back()->send(text.substr(0, text.size() - 1));
    num_bytes += body.size() - 1;
  }
  const std::string held = "\nquire:body_bytes_in_flight{engine=\"0\",model_name=\"bytes\"} " + std::to_string(num_bytes) + "\n";
  bool is_held = false;
  for (int i = 0; i < 2000 && !is_held; ++i) {
    is_held = HttpClient(port).get("/metrics").body.contains(held);
    if (!is_held) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ASSERT_TRUE(is_held);
  drain();
  for (const auto& client : clients) {
    client->send("}");
    const ClientResponse response = client->receive();
    EXPECT_EQ(response.status, 503U);
    EXPECT_TRUE(response.error_message().starts_with("the server is shutting down")) << response.body;
    EXPECT_EQ(response.json().at("error").at("code"), "shutting_down");
    EXPECT_EQ(response.header("Retry-After"), "1");
    EXPECT_EQ(response.header("Connection"), "close");
  }
}

}  // namespace
}  // namespace quire
