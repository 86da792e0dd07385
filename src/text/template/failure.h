#pragma once
// The exception that stops a template. Code in this folder throws it; ChatTemplate::parse() and render() catch it and return an Error.
#include <string>
#include <utility>

#include "quire/base/error.h"

namespace quire::jinja {

struct Failure {
  ErrorCode code = ErrorCode::invalid_argument;
  int line = 0;  // 0: the error is not at a line of the template
  std::string message;
};

[[noreturn]] inline void stop(ErrorCode code, int line, std::string message) {
  throw Failure{code, line, std::move(message)};
}

}  // namespace quire::jinja
