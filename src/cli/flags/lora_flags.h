#pragma once
// Flags of LoRA adapters, with vLLM's names.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/error.h"
#include "quire/base/options.h"

namespace quire {

struct LoraFlags {
  bool enable_lora = false;
  AdapterOptions options = {.max_loras = 1, .modules = {}};
  std::vector<std::string> modules;  // as the user gave them
};

void add_lora_flags(CLI::App& app, LoraFlags& flags);

// Returns the adapter options that the flags describe. Without --enable-lora no adapters are served.
[[nodiscard]] Result<AdapterOptions> adapter_options(const LoraFlags& flags);

// Parses NAME=FOLDER, or {"name": NAME, "path": FOLDER}.
[[nodiscard]] Result<AdapterModule> parse_lora_module(std::string_view text);

}  // namespace quire
