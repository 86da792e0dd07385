#pragma once
// An engine with its API and its logger, made from a model and the options of the C API.
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "quire/base/error.h"
#include "quire/base/logger.h"
#include "quire/engine.h"
#include "quire/local_api.h"

namespace quire {

class LoadedEngine {
 public:
  // `options` is a JSON object with flags of `quire serve` (quire_engine_load), or empty. Errors name the flag, or `options` if the text is
  // not a JSON object.
  static Result<std::shared_ptr<LoadedEngine>> load(const std::string& model, std::string_view options);

  ~LoadedEngine() { stop(); }
  LoadedEngine(const LoadedEngine&) = delete;
  LoadedEngine& operator=(const LoadedEngine&) = delete;

  [[nodiscard]] LocalApi& api() { return *api_; }
  // Returns a JSON object with the metrics that have a key in Python's Engine.stats().
  [[nodiscard]] std::string stats_json() const;

  // Ends all calls of the API, and then the engine's requests. Thread-safe and idempotent.
  void stop();

 private:
  LoadedEngine() = default;

  std::shared_ptr<Logger> logger_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<LocalApi> api_;
};

}  // namespace quire
