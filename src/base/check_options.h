#pragma once
// Checks the numbers of a struct of options against the ranges of its table (quire/base/option.h).
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "quire/base/error.h"
#include "quire/base/option.h"

namespace quire {

// Returns `invalid_argument` if the value is a number outside the range. The error names `field`.
[[nodiscard]] Result<void> check_option(const std::string& field, const OptionValue& value, const OptionInfo& info,
                                        const OptionRange& range);

// Checks all options of a struct. `range` selects the range of each row (OptionInfo::range or core_range). In errors, names begin with
// `group`, such as "continuum.".
template <class Options, std::size_t kNum>
[[nodiscard]] Result<void> check_options(const std::array<Option<Options>, kNum>& table, Options options,
                                         std::optional<OptionRange> OptionInfo::* range = &OptionInfo::range, std::string_view group = {}) {
  for (const auto& [value, info] : table)
    if (const auto& bounds = info.*range; bounds && value != nullptr)
      if (auto valid = check_option(std::string(group) + info.name(), value(options), info, *bounds); !valid) return valid;
  return {};
}

}  // namespace quire
