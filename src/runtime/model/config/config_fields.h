#pragma once
// Reads many fields of a GGUF or JSON header and keeps the first error, so that a config is read like a list.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "format/json.h"
#include "quire/base/error.h"

namespace quire {

// Source is GgufFile or JsonRef and outlives the reader. After an error every read gives the fallback.
template <class Source>
class ConfigFields {
 public:
  explicit ConfigFields(const Source& source, std::string prefix = {}) : source_(source), prefix_(std::move(prefix)) {}

  template <class T>
  T need(std::string_view key) {
    return keep(source_.template get<T>(prefix_ + std::string(key)), T{});
  }
  template <class T>
  T get_or(std::string_view key, const T& fallback) {
    return keep(source_.template get_or<T>(prefix_ + std::string(key), fallback), fallback);
  }
  template <class T>
  std::optional<T> get_optional(std::string_view key) {
    return keep(source_.template get_optional<T>(prefix_ + std::string(key)), std::optional<T>{});
  }

  void refuse(Error error) {
    if (!error_) error_ = std::move(error);
  }
  [[nodiscard]] const std::optional<Error>& error() const { return error_; }
  [[nodiscard]] std::string field(std::string_view key) const { return prefix_ + std::string(key); }

 private:
  template <class T>
  T keep(Result<T> value, T fallback) {
    if (value) return std::move(*value);
    refuse(std::move(value.error()));
    return fallback;
  }

  const Source& source_;
  std::string prefix_;
  std::optional<Error> error_;
};

using JsonFields = ConfigFields<JsonRef>;

// What lists of layers are made for, while a config is read; of more, the config is refused in the end.
constexpr std::uint32_t kMostLayers = 4096;

// A key of config.json that says what is not implemented.
inline void refuse_key(JsonFields& fields, std::string_view key, std::string message, std::string remedy) {
  fields.refuse({ErrorCode::unsupported, "config.json: " + std::string(key), std::move(message), std::move(remedy)});
}

}  // namespace quire
