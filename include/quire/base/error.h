#pragma once
// Errors for bad input from outside, as values. An error says what is wrong, in which field, and what to do about it.
#include <cstdint>
#include <expected>
#include <string>
#include <utility>

namespace quire {

// Kind of an error. The caller must act on invalid_argument, not_found, unsupported and too_large. A later retry may succeed after
// overloaded, shutting_down and unavailable. The operator of the machine must act on corrupt and io.
enum class ErrorCode : std::uint8_t {
  invalid_argument,  // the caller can correct it (HTTP 400)
  not_found,         // no such file, model or request (HTTP 404)
  unsupported,       // understood, but this build or model cannot do it (HTTP 400)
  too_large,         // over a limit (HTTP 413)
  overloaded,        // a bounded queue is full: try again later (HTTP 429)
  corrupt,           // a file is inconsistent or truncated
  io,                // the operating system refused
  shutting_down,     // the engine takes no new work (HTTP 503)
  unavailable,       // this engine has too much work; another one may have less (HTTP 503)
};

// Describes one failure.
struct Error {
  ErrorCode code = ErrorCode::invalid_argument;
  std::string field;                // the request field, option, file key or tensor; may be empty
  std::string message;              // the problem, with the value seen
  std::string remedy;               // suggested action; may be empty
  std::uint32_t retry_after_s = 0;  // when a retry may succeed; 0: not known

  // Returns "field: message; remedy", without the parts that are empty.
  [[nodiscard]] std::string to_string() const {
    std::string text = field.empty() ? message : field + ": " + message;
    return remedy.empty() ? text : text + "; " + remedy;
  }
};

template <class T>
// A value or an Error. An expected failure is a value, never an exception. A broken invariant is not an Error: it stops the program
// (QUIRE_CHECK).
using Result = std::expected<T, Error>;

// Returns an Error that converts to any Result.
inline std::unexpected<Error> fail(ErrorCode code, std::string field, std::string message, std::string remedy = {}) {
  return std::unexpected(Error{code, std::move(field), std::move(message), std::move(remedy)});
}

}  // namespace quire
