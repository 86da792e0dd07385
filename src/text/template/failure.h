#pragma once
// How a template stops: thrown inside this folder, caught by ChatTemplate's two functions and handed out as Error.
#include <string>
#include <utility>

#include "quire/base/error.h"

namespace quire::jinja {

struct Failure {
  ErrorCode code = ErrorCode::invalid_argument;
  int line = 0;  // 0: the message stands for itself
  std::string message;
};

[[noreturn]] inline void stop(ErrorCode code, int line, std::string message) {
  throw Failure{code, line, std::move(message)};
}

}  // namespace quire::jinja
