#pragma once
// Flags of LoRA adapters, named as vLLM names them.
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
  std::vector<std::string> modules;  // as they were given
};

void add_lora_flags(CLI::App& app, LoraFlags& flags);

// What the flags say; without --enable-lora, that none are served.
[[nodiscard]] Result<AdapterOptions> adapter_options(const LoraFlags& flags);

// NAME=FOLDER, or {"name": NAME, "path": FOLDER}.
[[nodiscard]] Result<AdapterModule> parse_lora_module(std::string_view text);

}  // namespace quire
