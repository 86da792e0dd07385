#pragma once
// A loop whose index is a compile-time constant. Some instructions need constant lane numbers, and g++ 12 keeps arrays of vectors in
// registers only this way. Local to the including file.
#include <utility>

namespace quire {
namespace {

// Calls f(0) .. f(N - 1), each with a std::integral_constant.
template <int N, class F>
[[gnu::always_inline]] inline void unrolled(F f) {
  [&]<int... I>(std::integer_sequence<int, I...>)
      __attribute__((always_inline)) { (f(std::integral_constant<int, I>{}), ...); }(std::make_integer_sequence<int, N>{});
}

}  // namespace
}  // namespace quire
