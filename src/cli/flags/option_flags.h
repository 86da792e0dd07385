#pragma once
// Makes flags from tables of options (quire/base/option.h).
#include <CLI/CLI.hpp>
#include <array>
#include <cstddef>

#include "quire/base/option.h"

namespace quire {

// Adds the flag of one option. The value must outlive parsing.
void add_option_flag(CLI::App& app, const OptionInfo& info, const OptionValue& value);

// Adds the flags of a table, without options that have no flag or that are added by hand. `options` must outlive parsing.
template <class Options, std::size_t kNum>
void add_option_flags(CLI::App& app, const std::array<Option<Options>, kNum>& table, Options& options) {
  for (const auto& [value, info] : table)
    if (value != nullptr && !info.flag.empty() && info.kind != OptionKind::parsed) add_option_flag(app, info, value(options));
}

// Puts all flags that are in no group yet into one.
void group_flags(CLI::App& app, OptionGroup group);

}  // namespace quire
