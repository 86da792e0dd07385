#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <iterator>
#include <mutex>
#include <utility>

#include "quire/engine.h"

namespace quire {
namespace {

template <class T>
void append_moved(std::vector<T>& to, std::vector<T>& from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

// Joins the outputs of one request. deliver() is called on the engine thread, and wait() on the caller's thread.
class WholeOutput final : public OutputSink {
 public:
  void deliver(std::vector<RequestOutput> outputs) override {
    const std::scoped_lock lock(mutex_);
    for (RequestOutput& output : outputs) join(std::move(output));
    // Notifies while the lock is held. Otherwise wait() could return, and this object could be destroyed, before the notification.
    if (whole_.finished) ended_.notify_one();
  }

  RequestOutput wait() {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [this] { return whole_.finished; });
    return std::move(whole_);
  }

 private:
  void join(RequestOutput output) {
    append_moved(whole_.tokens, output.tokens);
    append_moved(whole_.logprobs, output.logprobs);
    append_moved(whole_.routed_experts, output.routed_experts);
    // All other fields take the values of the newer output, except the fields that come with the first token.
    std::swap(whole_.tokens, output.tokens);
    std::swap(whole_.logprobs, output.logprobs);
    std::swap(whole_.routed_experts, output.routed_experts);
    if (output.prompt_logprobs == nullptr) output.prompt_logprobs = std::move(whole_.prompt_logprobs);
    if (output.prompt_experts == nullptr) output.prompt_experts = std::move(whole_.prompt_experts);
    output.num_cached_tokens = std::max(output.num_cached_tokens, whole_.num_cached_tokens);
    output.waited_s = std::max(output.waited_s, whole_.waited_s);
    whole_ = std::move(output);
  }

  std::mutex mutex_;
  std::condition_variable ended_;
  RequestOutput whole_;
};

}  // namespace

Result<RequestOutput> Engine::generate(EngineRequest request) {
  if (request.n != 1)
    return fail(ErrorCode::invalid_argument, "n", fmt::format("is {}, but generate() returns one answer", request.n),
                "set n to 1, or use submit()");
  if (request.session) return fail(ErrorCode::invalid_argument, "session", "is true, but a session does not end", "use submit()");
  WholeOutput sink;
  if (const auto submitted = submit(std::move(request), sink); !submitted) return std::unexpected(submitted.error());
  RequestOutput whole = sink.wait();
  if (whole.refusal) return std::unexpected(*std::move(whole.refusal));
  if (whole.reason == FinishReason::error)
    return fail(ErrorCode::io, "request", whole.error.empty() ? "the engine failed" : whole.error, "try again");
  return whole;
}

}  // namespace quire
