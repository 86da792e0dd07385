#pragma once
// For commands that ask a running server: where it is, and its answer. On the main thread.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "quire/base/error.h"

namespace quire {

struct ServerAddress {
  std::string host = "127.0.0.1", key{};
  std::uint16_t port = 8000;
};

// --host, --port and --api-key.
void add_server_flags(CLI::App& app, ServerAddress& server, const char* whose_key);

// The body of a GET that was answered with 200. Errors: nobody answers; `field` and `remedy` where the server refuses.
Result<std::string> get_from(const ServerAddress& server, const std::string& path, const char* field, const char* remedy);

}  // namespace quire
