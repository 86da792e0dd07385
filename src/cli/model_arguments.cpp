#include "cli/model_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include "cli/flags/usage_error.h"

namespace quire {

namespace {

// Flags of the server that the clients connect to.
constexpr std::string_view kFrontFlags[] = {"host",
                                            "port",
                                            "allowed-host",
                                            "cors-allow-origin",
                                            "trusted-proxy",
                                            "api-key",
                                            "tenant-key",
                                            "tenant-secret",
                                            "drain-timeout-ms",
                                            "models",
                                            "models-max-loaded",
                                            "models-memory",
                                            "models-max-waiting",
                                            "models-idle-seconds",
                                            "models-wait-seconds",
                                            "config",
                                            "supervised"};
// Flags that the server and the processes of the models must have alike.
constexpr std::string_view kSharedFlags[] = {"tenant-keys-file"};
// Flags that name the model.
constexpr std::string_view kNameFlags[] = {"served-model-name"};
// Flags whose folder, or beginning of file names, only one process can use.
constexpr std::string_view kFolderFlags[] = {"kv-disk", "kv-swap-disk", "journal", "journal-save"};
constexpr std::string_view kFileFlags[] = {"trace"};
// Flags whose address or file belongs to one model.
constexpr std::string_view kModelFlags[] = {"kv-port", "kv-role",      "kv-share",      "kv-peers",          "kv-events-config",
                                            "mmproj",  "lora-modules", "chat-template", "speculative-model", "speculative-config"};

bool is_one_of(std::string_view name, std::span<const std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

bool has_flag(const ListedModel& model, const CLI::Option& option) {
  return std::ranges::any_of(model.flags, [&](const ConfigEntry& entry) {
    return option.check_lname(entry.key) || (entry.key.starts_with("no-") && option.check_lname(entry.key.substr(3)));
  });
}

// Returns the model's name as the name of a folder.
std::string folder_name(std::string name) {
  std::ranges::replace(name, '/', '_');
  return name.starts_with('.') ? "_" + name : name;
}

// Appends the flags of the command line that apply to this model.
Result<void> append_common_flags(const CLI::App& command, const ListedModel& model, std::vector<std::string>& arguments) {
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() == 0 || option->get_lnames().empty() || has_flag(model, *option)) continue;
    const std::string& name = option->get_lnames().front();
    if (is_one_of(name, kFrontFlags)) continue;
    if (is_one_of(name, kNameFlags) || is_one_of(name, kModelFlags))
      return fail(ErrorCode::invalid_argument, "--" + name, "cannot apply to all models of --models",
                  is_one_of(name, kNameFlags) ? "name the models in the file" : "set it in the 'flags' of one model in the file");
    for (std::string value : option->results()) {
      if (is_one_of(name, kFolderFlags)) value += "/" + folder_name(model.name);
      if (is_one_of(name, kFileFlags)) value += "." + folder_name(model.name);
      arguments.push_back(fmt::format("--{}={}", name, value));
    }
  }
  return {};
}

Error in_model(Error error, const ListedModel& model) {
  error.message = fmt::format("model '{}': {}{}", model.name, error.field.empty() ? "" : error.field + ": ", error.message);
  error.field = "--models";
  return error;
}

// Moves flags that can also be environment variables there, because their values may be secret, and other users of the machine can see
// arguments.
void move_to_environment(const CLI::App& serve, PreparedModel& prepared) {
  std::erase_if(prepared.arguments, [&](const std::string& argument) {
    const std::size_t end = argument.find('=');
    const CLI::Option* const option = serve.get_option_no_throw(argument.substr(0, end));
    if (option == nullptr || option->get_envname().empty() || end == std::string::npos) return false;
    prepared.environment.push_back(option->get_envname() + argument.substr(end));
    return true;
  });
}

}  // namespace

Result<PreparedModel> prepare_model(const CLI::App& command, const ListedModel& model) {
  PreparedModel prepared{
      .arguments = {}, .environment = {}, .app = std::make_shared<CLI::App>("", "quire"), .flags = std::make_shared<ServeFlags>()};
  CLI::App& app = *prepared.app;
  CLI::App* const serve = app.add_subcommand("serve");
  add_serve_flags(*serve, *prepared.flags);
  for (const ConfigEntry& entry : model.flags) {
    if (is_one_of(entry.key, kFrontFlags) || is_one_of(entry.key, kSharedFlags) || is_one_of(entry.key, kNameFlags))
      return fail(ErrorCode::invalid_argument, "--models", fmt::format("line {}: '{}' is not a flag of one model", entry.line, entry.key),
                  is_one_of(entry.key, kNameFlags) ? "use 'name' and 'aliases'" : "give it on the command line");
    if (auto added = append_config_entry(*serve, entry, prepared.arguments); !added)
      return std::unexpected(in_model(std::move(added.error()), model));
  }
  if (auto added = append_common_flags(command, model, prepared.arguments); !added) return std::unexpected(added.error());
  std::vector<std::string> words = prepared.arguments;
  words.insert(words.begin(), {"serve", model.model});
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::ParseError& error) {
    return std::unexpected(in_model({ErrorCode::invalid_argument, "", usage_error(app, error, words), ""}, model));
  }
  move_to_environment(*serve, prepared);
  return prepared;
}

std::optional<std::string> folder_argument(std::span<const std::string> arguments, std::span<const std::string> others) {
  for (const std::string& argument : arguments) {
    const std::string_view name = std::string_view(argument).substr(0, argument.find('='));
    const bool is_folder = name.starts_with("--") && (is_one_of(name.substr(2), kFolderFlags) || is_one_of(name.substr(2), kFileFlags));
    if (is_folder && std::ranges::find(others, argument) != others.end()) return argument;
  }
  return std::nullopt;
}

}  // namespace quire
