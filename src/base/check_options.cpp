#include "base/check_options.h"

#include <fmt/format.h>

#include <concepts>
#include <type_traits>

#include "base/check_range.h"

namespace quire {

Result<void> check_option(const std::string& field, const OptionValue& value, const OptionInfo& info, const OptionRange& range) {
  return std::visit(
      [&](const auto* number) -> Result<void> {
        using Number = std::remove_cvref_t<decltype(*number)>;
        if constexpr (std::unsigned_integral<Number> && !std::same_as<Number, bool>) {
          return check_range(field.c_str(), *number, range.low, range.high);
        } else if constexpr (std::same_as<Number, double>) {
          if (*number >= static_cast<double>(range.low) && *number <= static_cast<double>(range.high)) return {};
          return fail(ErrorCode::invalid_argument, field, fmt::format("{} is out of range", *number),
                      fmt::format("use {} to {}{}", range.low, range.high, info.kind == OptionKind::seconds ? " seconds" : ""));
        } else {
          return {};
        }
      },
      value);
}

}  // namespace quire
