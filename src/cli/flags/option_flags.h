#pragma once
// Creates flags from tables of options (quire/base/option.h).
#include <CLI/CLI.hpp>
#include <array>
#include <cstddef>

#include "quire/base/option.h"

namespace quire {

// Adds the flag of one option. `value` must outlive parsing.
void add_option_flag(CLI::App& app, const OptionInfo& info, const OptionValue& value);

// Adds the flags of a table, except for options without a flag and options that are parsed. `options` must outlive parsing.
template <class Options, std::size_t kNum>
void add_option_flags(CLI::App& app, const std::array<Option<Options>, kNum>& table, Options& options) {
  for (const auto& [value, info] : table)
    if (value != nullptr && !info.flag.empty() && info.kind != OptionKind::parsed) add_option_flag(app, info, value(options));
}

// Assigns all flags that have no group yet to `group`.
void group_flags(CLI::App& app, OptionGroup group);

}  // namespace quire
