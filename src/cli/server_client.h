#pragma once
// For commands that query a running server: its address and its answer. On the main thread.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "quire/base/error.h"

namespace quire {

struct ServerAddress {
  std::string host = "127.0.0.1", key{};
  std::uint16_t port = 8000;
};

// Adds --host, --port and --api-key.
void add_server_flags(CLI::App& app, ServerAddress& server, const char* key_help);

// Returns the body of a GET with status 200. Errors: no server answers (field --port), or the server refuses (`field` and `remedy`).
Result<std::string> get_from(const ServerAddress& server, const std::string& path, const char* field, const char* remedy);

}  // namespace quire
