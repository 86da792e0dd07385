// Adds the engine flags that several commands share. Called once, while the command line is set up. Names follow vLLM. A flag writes into
// the given options, which must live until the command has run.
#include "cli/flags/engine_flags.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <string>
#include <utility>

#include "cli/flags/option_flags.h"
#include "cli/flags/speculation_flags.h"
#include "quire/engine_option_table.h"

namespace quire {

namespace {

constexpr std::array<std::pair<std::string_view, std::uint64_t>, 17> kUnits = {{
    {"", 1},
    {"B", 1},
    {"K", 1ULL << 10},
    {"KiB", 1ULL << 10},
    {"kB", 1000ULL},
    {"KB", 1000ULL},
    {"M", 1ULL << 20},
    {"MiB", 1ULL << 20},
    {"MB", 1000'000ULL},
    {"G", 1ULL << 30},
    {"GiB", 1ULL << 30},
    {"GB", 1000'000'000ULL},
    {"T", 1ULL << 40},
    {"TiB", 1ULL << 40},
    {"TB", 1000'000'000'000ULL},
    {"m", 1ULL << 20},
    {"g", 1ULL << 30},
}};

}  // namespace

Result<std::uint64_t> parse_bytes(std::string_view text) {
  double number = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  for (const auto& [name, factor] : kUnits)
    if (error == std::errc() && unit == name && number >= 0.0 && number * static_cast<double>(factor) < 9e18)
      return static_cast<std::uint64_t>(number * static_cast<double>(factor));
  return fail(ErrorCode::invalid_argument, "", fmt::format("'{}' is not a size", text), "write 512MiB, 2GiB or a number of bytes");
}

CLI::Validator bytes_flag() {
  return CLI::Validator(
      [](std::string& text) {
        const Result<std::uint64_t> bytes = text == "auto" ? Result<std::uint64_t>(0) : parse_bytes(text);
        if (!bytes.has_value()) return bytes.error().to_string();
        text = std::to_string(*bytes);
        return std::string();
      },
      "SIZE", "bytes");
}

void add_engine_flags(CLI::App& app, EngineOptions& options) {
  app.add_option(
         "model", options.model,
         "GGUF file, Hugging Face folder, or model of the hub: ORG/REPO, ORG/REPO:QUANT or the URL of a file, downloaded if it is missing")
      ->required()
      ->type_name("MODEL");
  add_option_flags(app, kEngineOptions, options);
  add_option_flags(app, kCacheOptions, options.cache);
  add_option_flags(app, kSchedulerOptions, options.scheduler);
  add_option_flags(app, kContinuumOptions, options.continuum);
  add_option_flags(app, kPressureOptions, options.pressure);
  add_option_flags(app, kKvSwapOptions, options.kv_swap);
  add_option_flags(app, kNgramOptions, options.speculation);
  add_speculative_config_flag(app, options);
  add_option_flags(app, kWeightsOptions, options.weights);
  // vLLM's command lines may contain this flag. --help does not show it, because no worker of quire supports it.
  app.add_flag_callback("--enable-prompt-embeds",
                        [] {
                          throw CLI::ValidationError("--enable-prompt-embeds",
                                                     "prompt embeddings are not supported; remove the flag and send text or token ids");
                        })
      ->group("");
}

}  // namespace quire
