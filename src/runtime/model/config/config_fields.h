#pragma once
// Reads fields of a GGUF or JSON header and keeps the first error, so that callers need not check each field.
#include <fmt/format.h>

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "format/json.h"
#include "quire/base/error.h"

namespace quire {

// Meaning of null in JSON. `absent`: like a missing key. `none`: Python's None, as in configs of transformers: false where a bool is read,
// and an error where a number or a text is read (tests/golden/config_nulls.json).
enum class NullMeans : std::uint8_t { absent, none };

// `source` is a GgufFile or JsonRef and must outlive the reader. A read that fails returns the fallback.
template <class Source>
class ConfigFields {
 public:
  explicit ConfigFields(const Source& source, std::string prefix = {}) : source_(source), prefix_(std::move(prefix)) {}
  ConfigFields(const Source& source, NullMeans null) : source_(source), null_(null) {}

  template <class T>
  T need(std::string_view key) {
    return keep(source_.template get<T>(prefix_ + std::string(key)), T{});
  }
  template <class T>
  T get_or(std::string_view key, const T& fallback) {
    if (is_none(key)) return none_of(key, fallback);
    return keep(source_.template get_or<T>(prefix_ + std::string(key), fallback), fallback);
  }
  template <class T>
  std::optional<T> get_optional(std::string_view key) {
    return keep(source_.template get_optional<T>(prefix_ + std::string(key)), std::optional<T>{});
  }

  // Returns whether the key is present with the value null; false for GGUF.
  [[nodiscard]] bool is_null(std::string_view key) const {
    if constexpr (std::same_as<Source, JsonRef>) return source_.is_null(key);
    return false;
  }

  void refuse(Error error) {
    if (!error_) error_ = std::move(error);
  }
  [[nodiscard]] const std::optional<Error>& error() const { return error_; }
  [[nodiscard]] std::string field(std::string_view key) const { return prefix_ + std::string(key); }

 private:
  [[nodiscard]] bool is_none(std::string_view key) const { return null_ == NullMeans::none && is_null(key); }
  template <class T>
  T none_of(std::string_view key, const T& fallback) {
    if constexpr (std::same_as<T, bool>) return false;
    if constexpr (std::same_as<Source, JsonRef>)
      refuse({ErrorCode::corrupt, fmt::format("{}{}{}", source_.path(), source_.path().ends_with(".json") ? ": " : ".", key),
              "is null, but the model needs a value",
              "use the config that belongs to the weights, or leave the key out to use the default value"});
    return fallback;
  }
  template <class T>
  T keep(Result<T> value, T fallback) {
    if (value) return std::move(*value);
    refuse(std::move(value.error()));
    return fallback;
  }

  const Source& source_;
  std::string prefix_;
  NullMeans null_ = NullMeans::absent;
  std::optional<Error> error_;
};

using JsonFields = ConfigFields<JsonRef>;

// Maximum length of a list of layers while a config is read. check() refuses a config with more layers.
constexpr std::uint32_t kMaxLayers = 4096;

// Records an error for a key of config.json that requests an unimplemented feature.
inline void refuse_key(JsonFields& fields, std::string_view key, std::string message, std::string remedy) {
  fields.refuse({ErrorCode::unsupported, "config.json: " + std::string(key), std::move(message), std::move(remedy)});
}

}  // namespace quire
