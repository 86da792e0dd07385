#include "cli/server_client.h"

#include <fmt/format.h>

#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <iterator>

namespace quire {
namespace {

constexpr std::chrono::seconds kRequestTimeout(30);
constexpr unsigned kOk = 200;

}  // namespace

void add_server_flags(CLI::App& app, ServerAddress& server, const char* key_help) {
  app.add_option("--host", server.host, "Address of the server")->capture_default_str();
  app.add_option("--port", server.port, "Port of the server")->capture_default_str();
  app.add_option("--api-key", server.key, key_help)->envname("QUIRE_API_KEY");
}

Result<std::string> get_from(const ServerAddress& server, const std::string& path, const char* field, const char* remedy) {
  boost::asio::ip::tcp::iostream stream;
  stream.expires_after(kRequestTimeout);
  stream.connect(server.host, std::to_string(server.port));
  stream << "GET " << path << " HTTP/1.1\r\nHost: " << server.host << ':' << server.port << "\r\nConnection: close\r\n"
         << (server.key.empty() ? std::string() : "Authorization: Bearer " + server.key + "\r\n") << "\r\n"
         << std::flush;
  std::string version, line;
  unsigned status = 0;
  stream >> version >> status;
  while (std::getline(stream, line) && line != "\r") {
  }
  std::string body((std::istreambuf_iterator<char>(stream)), {});
  if (status == 0)
    return fail(ErrorCode::not_found, "--port", fmt::format("no server answers at {}:{}", server.host, server.port),
                "start quire serve, or pass its --host and --port");
  if (status != kOk) return fail(ErrorCode::not_found, field, fmt::format("status {}: {}", status, body), remedy);
  return body;
}

}  // namespace quire
