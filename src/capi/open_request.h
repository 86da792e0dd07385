#pragma once
// A request of the C API, with the output that its caller reads.
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "capi/loaded_engine.h"
#include "capi/output_reader.h"
#include "quire/local_api.h"

namespace quire {

// nullopt: no limit.
using PollTimeout = std::optional<std::chrono::milliseconds>;

// Thread-safe.
class OpenRequest {
 public:
  // `id` is the id of the answer, or empty for a route without one.
  OpenRequest(const std::shared_ptr<LoadedEngine>& engine, std::unique_ptr<LocalCall> call, std::string id)
      : engine_(engine), call_(std::move(call)), id_(std::move(id)) {}

  [[nodiscard]] const std::string& id() const { return id_; }
  // Returns null after the engine was freed.
  [[nodiscard]] std::shared_ptr<LoadedEngine> engine() const { return engine_.lock(); }
  [[nodiscard]] LocalCall& call() { return *call_; }

  // Returns the error of a reply that refuses the request, if it has arrived. Called before the first poll().
  [[nodiscard]] std::optional<ReplyError> refusal();

  // The output is owned by this object, and is replaced by the next call. Null: nothing arrived within the timeout (`end` is `none`), or
  // the reply has ended.
  struct Polled {
    const ReplyOutput* output = nullptr;
    LocalCallEnd end = LocalCallEnd::none;
  };
  [[nodiscard]] Polled poll(PollTimeout timeout);

 private:
  void take(PollTimeout timeout);

  const std::weak_ptr<LoadedEngine> engine_;
  const std::unique_ptr<LocalCall> call_;
  const std::string id_;
  std::mutex mutex_;  // guards the members below
  OutputReader reader_;
  std::optional<ReplyOutput> current_;
  LocalCallEnd end_ = LocalCallEnd::none;
};

}  // namespace quire
