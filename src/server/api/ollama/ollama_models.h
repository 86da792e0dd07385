#pragma once
// The names and properties of the served model and its adapters, as Ollama's API reports them.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/error.h"
#include "quire/engine.h"
#include "quire/server_options.h"
#include "server/api/ollama/ollama_request.h"
#include "server/request/served_model.h"

namespace quire {

// The version of Ollama whose API this server has. Clients compare it with the version that they require.
inline constexpr std::string_view kOllamaVersion = "0.13.0";

// Returns the name of the model or adapter that `name` means: every served name, also followed by ":latest". Errors: `not_found`, in
// Ollama's words.
[[nodiscard]] Result<std::string> find_ollama_model(const ServedModel& model, const std::string& name);

// Returns the properties that decide how a body is translated.
[[nodiscard]] OllamaModel ollama_model(const ServedModel& model);

// The parts of the server that the answers describe. Any thread may use them.
struct OllamaHost {
  const Engine& engine;
  const ServedModel& model;
  const ServerOptions& options;
  std::int64_t started_s = 0;  // seconds since 1970
};

// The properties of a model that lists show.
struct OllamaDetails {
  std::string format, architecture, parameter_size, quantization, digest;
};
// Returns the properties of the model that was read from `path`.
[[nodiscard]] OllamaDetails ollama_details(const ModelInfo& info, std::string_view path);

// A model in the answers of GET /api/tags and GET /api/ps.
struct OllamaEntry {
  std::string name, digest;
  std::string parent{};  // the model of an adapter
  OllamaDetails details{};
  std::uint64_t bytes = 0;
  std::int64_t modified_s = 0;  // seconds since 1970
  std::int64_t expires_s = 0;   // when the model is unloaded, in seconds since 1970; 0: never
  std::uint32_t context_length = 0;
};
// Return the bodies of these answers.
[[nodiscard]] std::string ollama_list(const std::vector<OllamaEntry>& entries);
[[nodiscard]] std::string ollama_running_list(const std::vector<OllamaEntry>& entries);

// Return the bodies of the answers of GET /api/tags, GET /api/ps and POST /api/show. Called on any thread.
[[nodiscard]] std::string ollama_tags(const OllamaHost& host);
[[nodiscard]] std::string ollama_running(const OllamaHost& host);
[[nodiscard]] Result<std::string> ollama_show(std::string body, const OllamaHost& host);

// Returns the answer of POST /api/show for a model of which only the headers were read. It never has the capability "insert", which
// requires the tokenizer.
[[nodiscard]] std::string ollama_show_unloaded(const ModelInfo& info, const std::string& name, const std::string& path,
                                               std::uint32_t context_length);

}  // namespace quire
