// Adds flags for options. Called once, while the command line is set up. A flag only writes its option.
#include "cli/flags/option_flags.h"

#include <fmt/format.h>

#include <limits>
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

// Returns a check that a text is a number of the option's type. check_options() checks the option's range, but only numbers of this type
// reach it.
template <class Number>
CLI::Validator number_check(const OptionInfo& info) {
  constexpr bool kIsWhole = std::is_integral_v<Number>;
  std::string use = kIsWhole ? "a whole number" : "a number";
  if (info.range)
    use += fmt::format(" from {} to {}", info.range->low, info.range->high);
  else if (kIsWhole)
    use += fmt::format(" from {} to {}", std::numeric_limits<Number>::min(), std::numeric_limits<Number>::max());
  return CLI::Validator(
      [use](std::string& text) {
        const bool is_number = CLI::TypeValidator<Number>("")(text).empty();
        return is_number ? std::string() : fmt::format("'{}' is not {}", text.substr(0, 100), use);
      },
      "");
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
    if constexpr (std::is_arithmetic_v<Value>)
      if (info.kind != OptionKind::bytes) option->check(number_check<Value>(info));
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
