#pragma once
// A client's request for vectors of one or more texts (embeddings, scores), from submission to the last vector. The response is built from
// all vectors.
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

// Fields that the responses of all pooling routes have.
struct PooledHead {
  std::string id;
  std::string model;
  std::int64_t created_s = 0;
};

struct PreparedPooling {
  const char* kind = "";  // prefix of the answer's id
  std::vector<EngineRequest> requests;
  std::string adapter = {};  // LoRA adapter of all requests; empty: none
  std::uint64_t num_prompt_tokens = 0;
  // Returns the body of the response. `vectors` are in the order of `requests`. Called on any thread, because writing many vectors takes
  // long.
  std::function<Result<std::string>(const PooledHead& head, std::span<const PooledVector> vectors)> answer;
  bool writes_files = false;           // `answer` writes files
  std::vector<std::string> ignored{};  // names of request fields that do not change the answer
};

// Used on the server's thread only. The destructor aborts its running requests.
class PoolingCall final : public OutputReceiver {
 public:
  // Maximum number of this call's requests in the engine at one time. The other requests follow later, so that a call with many texts
  // leaves capacity for other clients.
  static constexpr std::uint32_t kMaxAtOnce = 32;
  using Done = std::function<void(Result<std::vector<PooledVector>>)>;

  // Submits the first requests. Errors: the engine refuses a request. Without an error, `done` is called once, later, on the server's
  // thread.
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
  Done done_;  // empty after the call
};

}  // namespace quire
