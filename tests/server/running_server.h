#pragma once
// A server with a fake engine on a free loopback port, on a separate thread.
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <utility>

#include "quire/server.h"
#include "server/fake_engine.h"
#include "server/http_client.h"

namespace quire {

class RunningServer : public ::testing::Test {
 protected:
  ~RunningServer() override { stop(); }

  void start(ServerOptions options = {}) { start_with(engine, std::move(options)); }
  // `other` must outlive the test's server or be stopped after it.
  void start_with(Engine& other, ServerOptions options = {}) {
    options.port = 0;
    options.low_parse_priority = false;
    logger_ = std::make_unique<Logger>(log_options);
    auto server = Server::create(other, options, *logger_);
    ASSERT_TRUE(server.has_value()) << server.error().to_string();
    server_ = std::move(*server);
    port = server_->port();
    thread_ = std::thread([this] { server_->run(); });
  }

  void drain() { server_->request_stop(); }
  void wait_until_ended() {
    if (thread_.joinable()) thread_.join();
  }
  void stop() {
    if (!thread_.joinable()) return;
    drain();
    drain();
    wait_until_ended();
  }

  ClientResponse post(const std::string& path, const std::string& body, const std::string& headers = {}) {
    return HttpClient(port).post(path, body, headers);
  }

  // Stops the server and flushes its log.
  void stop_and_flush() {
    stop();
    server_.reset();
    logger_.reset();
  }

  FakeEngine engine;
  LogOptions log_options{.level = LogLevel::off};
  std::uint16_t port = 0;

 private:
  std::unique_ptr<Logger> logger_;  // must outlive the server
  std::unique_ptr<Server> server_;
  std::thread thread_;
};

}  // namespace quire
