#pragma once
// Errors for invalid input from outside, as values. An error states the field, the problem and what to do about it.
#include <cstdint>
#include <expected>
#include <string>
#include <utility>

namespace quire {

// Kind of an error. invalid_argument, not_found, unsupported and too_large: the caller must change the request. overloaded, shutting_down
// and unavailable: a later retry may succeed. corrupt and io: the operator of the machine must act.
enum class ErrorCode : std::uint8_t {
  invalid_argument,  // the request or option must be changed (HTTP 400)
  not_found,         // no such file, model or request (HTTP 404)
  unsupported,       // valid, but not supported by this build or model (HTTP 400)
  too_large,         // over a limit (HTTP 413)
  overloaded,        // a bounded queue is full: try again later (HTTP 429)
  corrupt,           // a file is inconsistent or truncated
  io,                // an operation of the operating system failed
  shutting_down,     // the engine takes no new work (HTTP 503)
  unavailable,       // this engine has too much work; another one may have less (HTTP 503)
};

// An error as a value: what is wrong, where, and what to do about it.
struct Error {
  ErrorCode code = ErrorCode::invalid_argument;
  std::string field;                // the request field, option, file key or tensor; may be empty
  std::string message;              // the problem, with the value seen
  std::string remedy;               // suggested action; may be empty
  std::uint32_t retry_after_s = 0;  // seconds until a retry may succeed; 0: not known

  // Returns "field: message; remedy", without the parts that are empty.
  [[nodiscard]] std::string to_string() const {
    std::string text = field.empty() ? message : field + ": " + message;
    return remedy.empty() ? text : text + "; " + remedy;
  }
};

template <class T>
// The result of a function that can fail: a value, or an Error. Expected failures are returned as an Error and never thrown. A broken
// invariant is not returned: QUIRE_CHECK stops the program.
using Result = std::expected<T, Error>;

// Returns an Error that converts to any Result.
inline std::unexpected<Error> fail(ErrorCode code, std::string field, std::string message, std::string remedy = {}) {
  return std::unexpected(Error{code, std::move(field), std::move(message), std::move(remedy)});
}

}  // namespace quire
