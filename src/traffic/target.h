#pragma once
// The server that a load run measures: its address, and how requests reach it.
#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "net/stream.h"
#include "quire/base/error.h"

namespace quire {

// Used by one thread.
class Target {
 public:
  // `url` is http://HOST[:PORT][/PATH] or https://...; a /v1 at its end is removed. Errors name --url or --api-key, or SSL_CERT_FILE if
  // there are no certificates.
  static Result<Target> create(std::string_view url, std::string api_key);

  // Returns a stream that connects to the server.
  [[nodiscard]] std::unique_ptr<NetStream> connect() const;
  // Returns the bytes of a request. An empty body is not sent.
  [[nodiscard]] std::string request(std::string_view method, std::string_view path, std::string_view body) const;
  [[nodiscard]] const std::string& url() const { return url_; }

  struct Answer {
    unsigned status = 0;
    std::string body{};
  };
  // Sends one request and waits for the whole answer. Afterwards connect() uses the IP address that answered, so that later connections do
  // not wait for a name server. Error: `unavailable`, with the field --url.
  Result<Answer> ask(std::string_view method, std::string_view path, std::string_view body, std::chrono::milliseconds timeout);

 private:
  NetAddress address_;
  std::shared_ptr<const NetTls> tls_;
  std::string url_, host_, path_, api_key_;
};

}  // namespace quire
