#pragma once
// A small blocking HTTP client over a loopback socket. Tests can also use it to violate the protocol.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quire {

struct ClientResponse {
  unsigned status = 0;  // 0: no response arrived
  std::string head;
  std::string body;

  [[nodiscard]] boost::json::value json() const { return boost::json::parse(body); }
  // Returns the value of a header, or "".
  [[nodiscard]] std::string header(const std::string& name) const {
    const std::size_t at = head.find("\r\n" + name + ": ");
    if (at == std::string::npos) return {};
    const std::size_t begin = at + name.size() + 4;
    return head.substr(begin, head.find("\r\n", begin) - begin);
  }
  [[nodiscard]] std::string error_message() const { return std::string(json().at("error").at("message").as_string()); }
  [[nodiscard]] std::string error_param() const {
    const boost::json::value whole = json();
    const auto& param = whole.at("error").at("param");
    return param.is_null() ? "" : std::string(param.as_string());
  }
};

class HttpClient {
 public:
  // Creates a client that is not connected yet.
  HttpClient() : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {}
  explicit HttpClient(std::uint16_t port, int receive_buffer_bytes = 0) : HttpClient() {
    if (receive_buffer_bytes > 0) ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof receive_buffer_bytes);
    connect_to(port);
  }
  void connect_to(std::uint16_t port) {
    host_ = "127.0.0.1:" + std::to_string(port);
    const timeval timeout{30, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  ~HttpClient() { close(); }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  [[nodiscard]] bool connected() const { return connected_; }
  void close() {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  }

  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
  }

  static std::string post_text(const std::string& path, const std::string& body, const std::string& headers = {},
                               const std::string& host = "localhost") {
    return "POST " + path + " HTTP/1.1\r\nHost: " + host + "\r\n" + headers + (body.empty() ? "" : "Content-Type: application/json\r\n") +
           "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  }
  void send_post(const std::string& path, const std::string& body, const std::string& headers = {}) {
    send(post_text(path, body, headers, host_));
  }
  ClientResponse post(const std::string& path, const std::string& body, const std::string& headers = {}) {
    send_post(path, body, headers);
    return receive();
  }
  ClientResponse get(const std::string& path, const std::string& headers = {}) {
    send("GET " + path + " HTTP/1.1\r\nHost: " + host_ + "\r\n" + headers + "\r\n");
    return receive();
  }
  // Sends any header; `request` is everything up to the empty line.
  ClientResponse ask(const std::string& request) {
    send(request + "\r\n");
    return receive();
  }

  // Returns status 0 if the connection ended first.
  ClientResponse receive() {
    ClientResponse response;
    if (!receive_head(response)) return response;
    if (response.header("Transfer-Encoding") == "chunked") {
      while (receive_chunk(response.body)) {
      }
    } else {
      const std::size_t length = std::strtoul(response.header("Content-Length").c_str(), nullptr, 10);
      while (buffer_.size() < length && fill()) {
      }
      response.body = take(length);
    }
    return response;
  }

  bool receive_head(ClientResponse& response) {
    std::size_t end = 0;
    while ((end = buffer_.find("\r\n\r\n")) == std::string::npos)
      if (!fill()) return false;
    response.head = take(end + 4);
    response.status = static_cast<unsigned>(std::strtoul(response.head.c_str() + 9, nullptr, 10));
    return true;
  }

  // Returns false for the last chunk, or if the connection ended.
  bool receive_chunk(std::string& out) {
    while (buffer_.find("\r\n") == std::string::npos)
      if (!fill()) return false;
    const std::size_t size = std::strtoul(buffer_.c_str(), nullptr, 16);
    take(buffer_.find("\r\n") + 2);
    while (buffer_.size() < size + 2)
      if (!fill()) return false;
    out += take(size);
    take(2);
    return size > 0;
  }

  // Returns whether the server has sent data that was not received yet.
  bool has_data() {
    char byte = 0;
    return !buffer_.empty() || ::recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
  }

  // Returns whether the server has closed the connection.
  bool at_end() {
    while (fill()) {
    }
    return end_;
  }

 private:
  bool fill() {
    char bytes[4096];
    const ssize_t read = ::recv(socket_, bytes, sizeof bytes, 0);
    if (read <= 0) {
      end_ = read == 0 || errno == ECONNRESET;
      return false;
    }
    buffer_.append(bytes, static_cast<std::size_t>(read));
    return true;
  }
  std::string take(std::size_t count) {
    std::string out = buffer_.substr(0, count);
    buffer_.erase(0, count);
    return out;
  }

  int socket_;
  std::string host_;
  bool connected_ = false;
  bool end_ = false;
  std::string buffer_;
};

// Returns the events of a stream without "[DONE]"; fails the test if "[DONE]" is missing.
inline std::vector<boost::json::value> stream_events(const std::string& body) {
  std::vector<boost::json::value> events;
  std::size_t at = 0;
  bool done = false;
  while (at < body.size()) {
    const std::size_t end = body.find("\n\n", at);
    const std::string line = body.substr(at, end - at);
    EXPECT_EQ(line.substr(0, 6), "data: ");
    done = line == "data: [DONE]";
    if (!done) events.push_back(boost::json::parse(line.substr(6)));
    at = end == std::string::npos ? body.size() : end + 2;
  }
  EXPECT_TRUE(done) << body;
  return events;
}

}  // namespace quire
