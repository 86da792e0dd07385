#pragma once
// A client's call for vectors of texts under way, from submission to the last vector. What it answers is made of them all.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "server/answers/engine_client.h"

namespace quire {

using PooledVector = std::vector<float>;

// What all answers to such calls have.
struct PooledHead {
  std::string id;
  std::string model;
  std::int64_t created_s = 0;
};

struct PreparedPooling {
  const char* kind = "";  // of its id
  std::vector<EngineRequest> requests;
  std::string adapter = {};  // of all of them; empty: none
  std::uint64_t num_prompt_tokens = 0;
  // The body, of the vectors in the order of `requests`. Any thread: there may be many.
  std::function<Result<std::string>(const PooledHead& head, std::span<const PooledVector> vectors)> answer;
  bool writes_files = false;  // `answer` does
};

// Lives on the server's thread. Its destruction ends what still runs.
class PoolingCall final : public OutputReceiver {
 public:
  // At the engine at one time: the others follow, so that a call of many texts leaves room for other clients.
  static constexpr std::uint32_t kMaxAtOnce = 32;
  using Done = std::function<void(Result<std::vector<PooledVector>>)>;

  // Errors: the engine takes none. Else `done` is called once, later.
  static Result<std::shared_ptr<PoolingCall>> start(EngineClient& engine, std::vector<EngineRequest> requests, Done done);
  ~PoolingCall() override;
  PoolingCall(const PoolingCall&) = delete;
  PoolingCall& operator=(const PoolingCall&) = delete;

  void on_output(std::uint32_t choice, RequestOutput& output) override;
  void on_failure() noexcept override;
  void on_step_end() override;

 private:
  PoolingCall(EngineClient& engine, std::vector<EngineRequest> requests, Done done);
  Result<void> submit_some();
  void abort();

  EngineClient* engine_;
  std::vector<EngineRequest> requests_;
  std::vector<std::optional<RequestId>> running_;
  std::vector<PooledVector> vectors_;
  std::size_t num_submitted_ = 0, num_running_ = 0;
  std::optional<Error> error_;
  Done done_;  // empty: has been called
};

}  // namespace quire
