// Adds flags for options. Called once, while the command line is set up. A flag only writes its option.
#include "cli/flags/option_flags.h"

#include <map>
#include <string>
#include <type_traits>

#include "cli/flags/choice_flag.h"
#include "cli/flags/engine_flags.h"

namespace quire {
namespace {

// Returns whether --help shows the value as the default. A zero or an empty text represents a default that the help text describes.
template <class Value>
bool has_shown_default(const Value& value) {
  if constexpr (std::is_arithmetic_v<Value>)
    return value != Value{};
  else
    return !value.empty();
}

template <class Value>
CLI::Option* add_typed(CLI::App& app, const OptionInfo& info, Value& value) {
  const std::string flag(info.flag), help(info.help);
  if constexpr (requires { words_of(value); }) {
    std::map<std::string, Value> choices;
    for (const auto& [text, choice] : words_of(value)) choices.emplace(text, choice);
    return add_choice<Value>(app, flag, value, help, choices);
  } else if constexpr (std::is_same_v<Value, bool>) {
    return app.add_flag(info.can_be_negated ? flag + ",!--no-" + flag.substr(2) : flag, value, help);
  } else {
    CLI::Option* const option = app.add_option(flag, value, help);
    if (info.kind == OptionKind::bytes)
      option->transform(bytes_flag());
    else if (has_shown_default(value))
      option->capture_default_str();
    if (!info.shown_default.empty()) option->default_str(std::string(info.shown_default));
    if (info.kind == OptionKind::existing_folder) option->check(CLI::ExistingDirectory);
    if (info.separated_by_commas) option->delimiter(',');
    return option;
  }
}

}  // namespace

void add_option_flag(CLI::App& app, const OptionInfo& info, const OptionValue& value) {
  CLI::Option* const option = std::visit([&](auto* typed) { return add_typed(app, info, *typed); }, value);
  option->group(title_of(info.group));
  if (!info.type.empty()) option->type_name(std::string(info.type));
  if (!info.needs.empty()) option->needs(app.get_option(std::string(info.needs)));
  if (*info.env != '\0') option->envname(info.env);
}

void group_flags(CLI::App& app, OptionGroup group) {
  const CLI::Option* const help = app.get_help_ptr();
  for (CLI::Option* const option : app.get_options())
    if (option != help && !option->get_lnames().empty() && option->get_group() == help->get_group()) option->group(title_of(group));
}

}  // namespace quire
