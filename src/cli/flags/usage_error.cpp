// Words the errors of CLI11. CLI11's exceptions contain only a text, so this file finds the cause in the state of the parsed commands: the
// arguments that no option took, the options with too many values or a wrong type, and the arguments that are missing.
#include "cli/flags/usage_error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <string_view>
#include <vector>

#include "base/nearest_name.h"

namespace quire {
namespace {

// Returns the app and the subcommands that the user named, outermost first.
std::vector<const CLI::App*> parsed_commands(const CLI::App& app) {
  std::vector<const CLI::App*> commands{&app};
  while (!commands.back()->get_subcommands().empty()) commands.push_back(commands.back()->get_subcommands().front());
  return commands;
}

std::vector<std::string_view> subcommand_names(const CLI::App& command) {
  std::vector<std::string_view> names;
  for (const CLI::App* sub : command.get_subcommands([](const CLI::App* /*any*/) { return true; })) names.push_back(sub->get_name());
  return names;
}

// Returns the names of the flags that --help shows, without dashes.
std::vector<std::string_view> flag_names(const CLI::App& command) {
  std::vector<std::string_view> names;
  for (const CLI::Option* option : command.get_options())
    if (!option->get_group().empty()) names.insert(names.end(), option->get_lnames().begin(), option->get_lnames().end());
  return names;
}

bool is_flag(std::string_view argument) {
  return argument.starts_with('-') && argument != "-" && argument != "--";
}

std::string unknown_flag(const CLI::App& command, std::string_view argument) {
  const std::string_view flag = argument.substr(0, argument.find('='));
  const auto nearest = nearest_name(flag.substr(flag.find_first_not_of('-')), flag_names(command));
  return fmt::format("unknown flag {}", flag) + (nearest ? fmt::format("; did you mean --{}?", *nearest) : "");
}

std::string unknown_command(const CLI::App& command, std::string_view argument) {
  const auto nearest = nearest_name(argument, subcommand_names(command));
  return fmt::format("unknown command '{}'", argument) + (nearest ? fmt::format("; did you mean '{}'?", *nearest) : "");
}

// Returns the error of the first argument that no option of the command took.
std::optional<std::string> unused_argument(const CLI::App& command, bool is_last) {
  const std::vector<std::string> unused = command.remaining();
  for (const std::string& argument : unused)
    if (is_flag(argument)) return unknown_flag(command, argument);
  for (const std::string& argument : unused) {
    if (argument == "--") continue;
    if (is_last && !subcommand_names(command).empty()) return unknown_command(command, argument);
    return fmt::format("unexpected argument '{}'", argument);
  }
  return std::nullopt;
}

// Returns the error of a flag that has no value because it is the last argument, or that has more values than it takes.
std::optional<std::string> wrong_count(const CLI::App& command, std::span<const std::string> arguments) {
  const std::string& last = arguments.back();
  const CLI::Option* const without_value = is_flag(last) ? command.get_option_no_throw(last) : nullptr;
  if (without_value != nullptr && without_value->get_items_expected_min() > 0) return fmt::format("{}: the value is missing", last);
  for (const CLI::Option* option : command.get_options())
    if (option->get_items_expected_max() > 0 && option->results().size() > static_cast<std::size_t>(option->get_items_expected_max()))
      return fmt::format("{}: has {} values ({}). Give one", option->get_name(), option->results().size(),
                         fmt::join(option->results(), ", "));
  return std::nullopt;
}

// Returns the error of a flag whose value has another type. CLI11 converts the values in the order of the flags and stops at the first one
// that it cannot convert.
std::optional<std::string> wrong_type(const CLI::App& command) {
  const CLI::Option* last = nullptr;
  for (const CLI::Option* option : command.get_options())
    if (option->count() > 0 && option->get_callback_run()) last = option;
  if (last == nullptr) return std::nullopt;
  const std::string type = last->get_type_name();
  const char* const words = type == "UINT" || type == "INT" ? "a whole number" : type == "FLOAT" ? "a number" : type.c_str();
  return fmt::format("{}: '{}' is not {}", last->get_name(), fmt::join(last->results(), ","), words);
}

// Returns the error of the first missing positional argument or command.
std::optional<std::string> missing_argument(const CLI::App& command, std::string_view full_name) {
  for (const CLI::Option* option : command.get_options())
    if (option->get_required() && option->count() == 0 && option->get_positional())
      return fmt::format("{} is missing", option->get_type_name());
  if (command.get_subcommands().empty() && !subcommand_names(command).empty())
    return fmt::format("the command of '{}' is missing. Use {}", full_name, fmt::join(subcommand_names(command), ", "));
  return std::nullopt;
}

std::string words_of_error(const std::vector<const CLI::App*>& commands, std::string_view full_name, const CLI::ParseError& error,
                           std::span<const std::string> arguments) {
  for (const CLI::App* command : commands)
    if (auto text = unused_argument(*command, command == commands.back())) return *std::move(text);
  std::optional<std::string> text;
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) text = wrong_count(*commands.back(), arguments);
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr) text = wrong_type(*commands.back());
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) text = missing_argument(*commands.back(), full_name);
  return text.value_or(error.what());
}

}  // namespace

std::string usage_error(const CLI::App& app, const CLI::ParseError& error, std::span<const std::string> arguments) {
  const std::vector<const CLI::App*> commands = parsed_commands(app);
  std::string full_name;
  for (const CLI::App* command : commands) full_name += (full_name.empty() ? "" : " ") + command->get_name();
  const std::string text = words_of_error(commands, full_name, error, arguments);
  return fmt::format("{}{}ee {} --help", text, text.ends_with('?') ? " S" : "; s", full_name);
}

}  // namespace quire
