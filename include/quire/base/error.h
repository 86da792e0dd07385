#pragma once
// Bad input from outside is a value: what is wrong, in which field, and what to do about it.
#include <cstdint>
#include <expected>
#include <string>
#include <utility>

namespace quire {

// Who is to act: the caller (invalid_argument, not_found, unsupported, too_large), time (overloaded, shutting_down), or who runs the
// machine (corrupt, io).
enum class ErrorCode : std::uint8_t {
  invalid_argument,  // the caller can mend it (HTTP 400)
  not_found,         // no such file, model or request (HTTP 404)
  unsupported,       // understood, but this build or model cannot do it (HTTP 400)
  too_large,         // over a limit (HTTP 413)
  overloaded,        // a bounded queue is full: try again later (HTTP 429)
  corrupt,           // a file contradicts itself or is cut short
  io,                // the operating system refused
  shutting_down,     // the engine takes no new work (HTTP 503)
};

struct Error {
  ErrorCode code = ErrorCode::invalid_argument;
  std::string field;    // the request field, option, file key or tensor; may be empty
  std::string message;  // what is wrong, with the value seen
  std::string remedy;   // what to do; may be empty

  // "field: message; remedy"
  [[nodiscard]] std::string to_string() const {
    std::string text = field.empty() ? message : field + ": " + message;
    return remedy.empty() ? text : text + "; " + remedy;
  }
};

template <class T>
// Expected failure is a value, never an exception. A broken invariant is no Error: it stops the program (QUIRE_CHECK).
using Result = std::expected<T, Error>;

inline std::unexpected<Error> fail(ErrorCode code, std::string field, std::string message, std::string remedy = {}) {
  return std::unexpected(Error{code, std::move(field), std::move(message), std::move(remedy)});
}

}  // namespace quire
