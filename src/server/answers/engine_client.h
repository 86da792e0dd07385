#pragma once
// The engine as the server's one thread sees it: outputs of a step arrive as one task on that thread.
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "quire/engine.h"

namespace quire {

// Called on the server's thread.
class OutputReceiver {
 public:
  virtual ~OutputReceiver() = default;
  virtual void on_output(std::uint32_t choice, RequestOutput& output) = 0;
  // on_output() has thrown (memory ran out): the receiver ends as failed and takes no further output.
  virtual void on_failure() noexcept = 0;
  // After the outputs of a step.
  virtual void on_step_end() = 0;
};

class EngineClient final : public OutputSink {
 public:
  using Task = std::function<void()>;

  // `post` runs a task later on the server's thread; it may be called from any thread. The engine must be stopped, or have nothing of
  // ours under way, before this goes.
  EngineClient(Engine& engine, std::function<void(Task)> post) : engine_(&engine), post_(std::move(post)) {}

  // The receiver must stay until its last output has come, or until finish(). Of several requests (EngineRequest::n) it answers the first
  // id, and `choice` is the first one's.
  Result<RequestId> submit(EngineRequest request, OutputReceiver& receiver, std::uint32_t choice);
  Result<RequestId> fork(RequestId parent, const EngineFork& fork, OutputReceiver& receiver, std::uint32_t choice);
  Result<void> append(RequestId session, std::vector<TokenId> tokens) { return engine_->append(session, std::move(tokens)); }
  // Ends a request; nothing of it is delivered any more.
  void finish(RequestId id, FinishReason reason);

  // For what the engine is asked (EngineClient::engine()): `then` runs on the server's thread, with the Result<Value> that was answered.
  // The engine must have answered before this goes.
  template <class Value, class Then>
  [[nodiscard]] std::function<void(Result<Value>)> on_server(Then then) {
    return [this, then = std::move(then)](Result<Value> answer) { post_([then, answer = std::move(answer)] { then(answer); }); };
  }

  // Engine thread.
  void deliver(std::vector<RequestOutput> outputs) override;

  [[nodiscard]] Engine& engine() { return *engine_; }

 private:
  // Who gets the outputs of an id, and as which choice of its request.
  struct Entry {
    OutputReceiver* receiver;
    std::uint32_t choice;
  };
  void expect(RequestId first, std::uint32_t n, OutputReceiver& receiver, std::uint32_t choice);
  void dispatch(std::vector<RequestOutput>& outputs);

  Engine* engine_;
  std::function<void(Task)> post_;
  std::unordered_map<RequestId, Entry> entries_;  // server's thread only
};

}  // namespace quire
