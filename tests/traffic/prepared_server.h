#pragma once
// A server on a free port whose answers a test prepares.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "support/loopback_socket.h"

namespace quire::test {

// Serves each connection on a separate thread. `answer` receives the request with its body and the number of the request, and returns the
// parts to send, with 2 ms between two parts. After an answer that contains "Connection: close", or an empty list, the connection is
// closed.
class PreparedServer {
 public:
  using Answer = std::function<std::vector<std::string>(const std::string& request, std::size_t number)>;

  explicit PreparedServer(Answer answer) : answer_(std::move(answer)) {
    port_ = listen_on_loopback(descriptor_, 64);
    thread_ = std::thread([this] { accept_all(); });
  }
  ~PreparedServer() {
    shutdown(descriptor_, SHUT_RDWR);
    thread_.join();
    close(descriptor_);
    {
      const std::lock_guard lock(mutex_);
      for (const int connection : connections_) shutdown(connection, SHUT_RDWR);
    }
    for (std::thread& thread : threads_) thread.join();
    for (const int connection : connections_) close(connection);
  }
  PreparedServer(const PreparedServer&) = delete;
  PreparedServer& operator=(const PreparedServer&) = delete;

  [[nodiscard]] std::string url() const { return fmt::format("http://127.0.0.1:{}", port_); }
  [[nodiscard]] std::size_t num_connections() {
    const std::lock_guard lock(mutex_);
    return connections_.size();
  }
  [[nodiscard]] std::vector<std::string> requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  void accept_all() {
    for (int accepted = accept(descriptor_, nullptr, nullptr); accepted >= 0; accepted = accept(descriptor_, nullptr, nullptr)) {
      const std::lock_guard lock(mutex_);
      connections_.push_back(accepted);
      threads_.emplace_back([this, accepted] { serve(accepted); });
    }
  }

  void serve(int connection) {
    for (std::string request = read(connection); !request.empty(); request = read(connection)) {
      std::size_t number = 0;
      {
        const std::lock_guard lock(mutex_);
        number = requests_.size();
        requests_.push_back(request);
      }
      bool is_last = true;
      for (const std::string& part : answer_(request, number)) {
        send(connection, part.data(), part.size(), MSG_NOSIGNAL);
        is_last = part.find("Connection: close") != std::string::npos;
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
      if (is_last) break;
    }
    shutdown(connection, SHUT_RDWR);
  }

  static std::string read(int connection) {
    constexpr std::string_view kLength = "Content-Length: ";
    std::string request;
    std::array<char, 4096> part{};
    for (;;) {
      const std::size_t head = request.find("\r\n\r\n");
      if (head != std::string::npos) {
        std::size_t length = 0;
        if (const std::size_t at = request.find(kLength); at < head)
          std::from_chars(request.data() + at + kLength.size(), request.data() + head, length);
        if (request.size() >= head + 4 + length) return request;
      }
      const ssize_t count = recv(connection, part.data(), part.size(), 0);
      if (count <= 0) return {};
      request.append(part.data(), static_cast<std::size_t>(count));
    }
  }

  const Answer answer_;
  const int descriptor_ = socket(AF_INET, SOCK_STREAM, 0);
  std::uint16_t port_ = 0;
  std::mutex mutex_;
  std::vector<int> connections_;
  std::vector<std::string> requests_;
  std::vector<std::thread> threads_;
  std::thread thread_;
};

inline std::string chunk(const std::string& text) {
  return fmt::format("{:x}\r\n{}\r\n", text.size(), text);
}

// Returns a stream of two tokens, which reports 7 prompt tokens.
inline std::string two_token_stream() {
  return "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n" +
         chunk("data: {\"choices\":[{\"text\":\" a\"}]}\n\n") +
         chunk("data: {\"choices\":[{\"text\":\" b\",\"finish_reason\":\"length\"}]}\n\n") +
         chunk("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2}}\n\n") + chunk("data: [DONE]\n\n") +
         "0\r\n\r\n";
}

inline std::string plain_answer(const std::string& status, const std::string& body) {
  return fmt::format("HTTP/1.1 {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{}", status, body.size(), body);
}

}  // namespace quire::test
