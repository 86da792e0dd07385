#pragma once
// Translates the keys of an mmproj file to config.json and preprocessor_config.json of a folder.
#include <fmt/format.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "format/gguf.h"
#include "quire/base/error.h"
#include "runtime/model/config/model_config.h"

namespace quire {

// Reads keys of an mmproj file and keeps the first error.
class ClipKeys {
 public:
  explicit ClipKeys(const GgufFile& file) : file_(file) {}
  template <class T>
  T get_or(std::string_view key, T fallback) {
    return take(file_.get_or<T>(name(key), fallback), fallback);
  }
  template <class T>
  T need(std::string_view key) {
    return take(file_.get<T>(name(key)), T{});
  }
  boost::json::array colours(std::string_view key) {
    boost::json::array list;
    for (const float value : take(file_.get_array<float>(name(key)), {})) list.emplace_back(value);
    return list;
  }
  [[nodiscard]] const std::optional<Error>& error() const { return error_; }

 private:
  static std::string name(std::string_view key) { return fmt::format("clip.vision.{}", key); }
  template <class T>
  T take(Result<T> read, T fallback) {
    if (read) return *std::move(read);
    if (!error_) error_ = std::move(read.error());
    return fallback;
  }

  const GgufFile& file_;
  std::optional<Error> error_;
};

// *_config() returns the contents of config.json, *_processor() returns the contents of preprocessor_config.json, both made from the keys
// of the mmproj file. `default_shuffle`: patches per side of the square that becomes one embedding, if the file has no key for it. Errors:
// a key is missing or has another type. The readers of the two JSON files check the values.
Result<boost::json::object> siglip_config(const GgufFile& file, const ModelConfig& decoder, std::uint32_t default_shuffle);
Result<boost::json::object> qwen2_config(const GgufFile& file, const ModelConfig& decoder, std::uint32_t default_shuffle);
Result<boost::json::object> qwen2_5_config(const GgufFile& file, const ModelConfig& decoder, std::uint32_t default_shuffle);

Result<boost::json::object> siglip_processor(const GgufFile& file, const VisionConfig& vision);
Result<boost::json::object> qwen_processor(const GgufFile& file, const VisionConfig& vision);

}  // namespace quire
