#pragma once
// The models that one server starts on demand, and the limits for all of them.
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/api/ollama/ollama_models.h"

namespace quire {

// The properties of a model that lists report while the model is not loaded. Read from the headers of its files.
struct ModelFacts {
  OllamaDetails details;
  std::string ollama_show;  // answer of POST /api/show; empty: the headers could not be read
  std::uint64_t weight_bytes = 0;
  std::uint32_t max_model_len = 0;
  bool supports_images = false, supports_audio = false;
};

struct ModelEntry {
  std::string name;
  std::vector<std::string> aliases;        // exact names, and patterns such as "claude-*"
  std::vector<std::string> arguments;      // of `quire serve`, with the model first, without the address and the names
  std::vector<std::string> environment{};  // "NAME=VALUE" for its process: flags whose values other users of the machine must not see
  std::vector<std::string> adapters;       // names of LoRA adapters
  std::uint64_t memory_bytes = 0;          // estimate of the memory of its process; 0: not known
  ModelFacts facts;
};

struct ModelsOptions {
  std::vector<ModelEntry> entries;                // requests without a model use the first one
  std::uint32_t max_loaded = 0;                   // maximum number of loaded models; 0: no limit
  std::uint64_t memory_bytes = 0;                 // memory of all loaded models together; 0: no limit
  std::uint32_t idle_s = 0;                       // a model without requests for this time is unloaded; 0: never
  std::uint32_t max_wait_s = 600;                 // time for which a request waits for its model, and for which a model may load
  std::uint32_t max_waiting = 256;                // requests that wait for one model
  std::string program;                            // path of the program `quire`
  std::chrono::milliseconds unload_time{20'000};  // time from SIGTERM to SIGKILL for a process without running requests
};

}  // namespace quire
