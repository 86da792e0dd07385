#pragma once
// value() returns the value of a Result. If the Result is an error, value() prints the error to stderr and exits.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <type_traits>
#include <utility>

#include "quire/base/error.h"

namespace quire {

template <class T>
T value(Result<T> result) {
  if (!result.has_value()) {
    fmt::print(stderr, "{}\n", result.error().to_string());
    std::exit(1);
  }
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

}  // namespace quire
