#pragma once
// Connects the engine to the server's single thread. The outputs of a step are posted to that thread as one task. Until the task runs,
// outputs of further steps are merged into its outputs, so a slow server thread accumulates only tokens.
#include <cstdint>
#include <functional>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "quire/engine.h"

namespace quire {

// Receives the outputs of requests. Called on the server's thread.
class OutputReceiver {
 public:
  virtual ~OutputReceiver() = default;
  virtual void on_output(std::uint32_t choice, RequestOutput& output) = 0;
  // Called after on_output() has thrown (out of memory). The receiver must end as failed and must accept no further output.
  virtual void on_failure() noexcept = 0;
  // Called after the outputs of one or more steps; at least once per receiver that got an output.
  virtual void on_step_end() = 0;
};

class EngineClient final : public OutputSink {
 public:
  using Task = std::function<void()>;

  // `post` runs a task later on the server's thread and can be called on any thread. When this object is destroyed, the engine must be
  // stopped, or none of this object's requests may be in flight.
  EngineClient(Engine& engine, std::function<void(Task)> post) : engine_(&engine), post_(std::move(post)) {}

  // Submits a request. The receiver must exist until its last output has arrived, or until finish(). If EngineRequest::n is greater than 1,
  // returns the first of n consecutive ids, and `choice` is the index of the first choice.
  Result<RequestId> submit(EngineRequest request, OutputReceiver& receiver, std::uint32_t choice);
  Result<RequestId> fork(RequestId parent, const EngineFork& fork, OutputReceiver& receiver, std::uint32_t choice);
  Result<void> append(RequestId session, std::vector<TokenId> tokens) { return engine_->append(session, std::move(tokens)); }
  // Ends a request. None of its outputs are delivered afterwards.
  void finish(RequestId id, FinishReason reason);

  // Returns a callback for functions of engine(). The callback runs `then` with the engine's result on the server's thread. The engine must
  // have called back before this object is destroyed.
  template <class Value, class Then>
  [[nodiscard]] std::function<void(Result<Value>)> on_server(Then then) {
    return [this, then = std::move(then)](Result<Value> answer) { post_([then, answer = std::move(answer)] { then(answer); }); };
  }

  // Called on the engine thread.
  void deliver(std::vector<RequestOutput> outputs) override;

  [[nodiscard]] Engine& engine() { return *engine_; }

 private:
  // The receiver of the outputs of one id, and the receiver's index of the choice.
  struct Entry {
    OutputReceiver* receiver;
    std::uint32_t choice;
  };
  void register_receiver(RequestId first, std::uint32_t n, OutputReceiver& receiver, std::uint32_t choice);
  void dispatch(std::vector<RequestOutput>& outputs);
  // Appends an output to `waiting_`, or merges it into an earlier output of the same request. mutex_ must be held.
  void merge_output(RequestOutput output);

  Engine* engine_;
  std::function<void(Task)> post_;
  std::unordered_map<RequestId, Entry> entries_;          // server's thread only
  std::mutex mutex_;                                      // guards `waiting_` and `mergeable_`
  std::vector<RequestOutput> waiting_;                    // outputs of the posted task; empty: no task is posted
  std::unordered_map<RequestId, std::size_t> mergeable_;  // indices into `waiting_` of outputs that can be merged into
};

}  // namespace quire
