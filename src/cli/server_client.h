#pragma once
// Flags and requests of commands that query a running server. Used on the main thread.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "quire/base/error.h"

namespace quire {

struct ServerAddress {
  std::string host = "127.0.0.1", key{};
  std::uint16_t port = 8000;
};

// Adds the flags --host, --port and --api-key.
void add_server_flags(CLI::App& app, ServerAddress& server, const char* key_help);

// Sends a GET and returns the body of the answer. Errors: no server answers (field --port), or the status is not 200 (the error has `field`
// and `remedy`).
Result<std::string> get_from(const ServerAddress& server, const std::string& path, const char* field, const char* remedy);

}  // namespace quire
