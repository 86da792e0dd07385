#include "cli/flags/flag_names.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "quire/engine_option_table.h"
#include "quire/server_option_table.h"

namespace quire {
namespace {

// Names in errors, and flags, of options that no table contains, because their flags set several values or are parsed.
constexpr auto kParsedFlags = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"kv_key", "--kv-key"},
    {"kv_connector", "--kv-connector"},
    {"kv_connector_library", "--kv-connector-library"},
    {"store_threshold", "--kv-store-threshold"},
    {"max_tracked_keys", "--kv-max-tracker-size"},
    {"lora_modules", "--lora-modules"},
    {"generation_config", "--generation-config"},
    {"override_generation_config", "--override-generation-config"},
    {"load_bytes_per_s", "--kv-load-speed"},
});

}  // namespace

Error as_flag(Error error) {
  if (const std::string_view flag = flag_of(error.field); !flag.empty()) error.field = flag;
  for (const auto& [value, info] : kServerOptions)
    if (!info.flag.empty() && error.field == info.name()) error.field = info.flag;
  for (const auto& [field, flag] : kParsedFlags) {
    const bool is_it = error.field.starts_with(field);
    const std::string_view part = is_it ? std::string_view(error.field).substr(field.size()) : "";
    if (is_it && (part.empty() || part.starts_with('.') || part.starts_with(' '))) error.field.replace(0, field.size(), flag);
  }
  return error;
}

Error as_flag(const CLI::App& command, Error error) {
  error = as_flag(std::move(error));
  std::string flag = "--" + error.field;
  std::ranges::replace(flag, '_', '-');
  if (command.get_option_no_throw(flag) != nullptr) error.field = flag;
  return error;
}

}  // namespace quire
