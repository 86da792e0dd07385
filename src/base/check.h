#pragma once
// Stops the program with a message if an invariant is broken, in release builds too.
#include <string_view>

namespace quire {

[[noreturn]] void check_failed(const char* file, int line, const char* condition, std::string_view detail);

}  // namespace quire

#define QUIRE_CHECK(condition, ...)                                          \
  do {                                                                       \
    if (!(condition)) [[unlikely]] {                                         \
      ::quire::check_failed(__FILE__, __LINE__, #condition, "" __VA_ARGS__); \
    }                                                                        \
  } while (false)
