#pragma once
// The answer of a model's process, as the connection of the client sends it.
#include <memory>
#include <optional>
#include <string>

#include "quire/base/error.h"
#include "server/http/reply.h"
#include "server/models/model_pool.h"
#include "server/models/upstream_call.h"

namespace quire {

// Used on the server's thread only. It waits for the model, then passes on the response: a response with a length as a whole, and a stream
// in parts.
class ProxyAnswer final : public AnswerSource {
 public:
  // `wake`: see RequestHandler::handle(). `retry_after_s` is reported with status 429 and 503.
  ProxyAnswer(boost::asio::io_context& io, UpstreamRequest request, Wake wake, std::uint32_t retry_after_s);
  ~ProxyAnswer() override { abort(); }

  // Waits for the model. The model stays loaded while this object lives.
  void send_to(ModelPool& pool, std::size_t model, std::optional<double> keep_alive_s);
  // Sends the request to a process without a hold on its model.
  void send_to_port(std::uint16_t port) { call_->start(port); }

  [[nodiscard]] bool is_stream() const override { return true; }
  [[nodiscard]] std::string_view stream_content_type() const override { return call_->head().content_type; }
  [[nodiscard]] HttpHeaders stream_headers() const override { return call_->head().headers; }
  [[nodiscard]] bool finished() const override { return has_stream() && call_->state() == UpstreamCall::State::complete; }
  [[nodiscard]] bool is_broken() const override { return has_stream() && call_->state() == UpstreamCall::State::failed; }
  [[nodiscard]] bool may_be_refused() const override;
  [[nodiscard]] bool refused() const override { return !may_be_refused() && !has_stream(); }
  // Always 0: the call stops receiving while the client reads too slowly.
  [[nodiscard]] std::size_t num_pending_bytes() const override { return 0; }
  [[nodiscard]] std::size_t num_echo_bytes() const override { return 0; }
  [[nodiscard]] std::string take_events() override { return call_->take_body(); }
  [[nodiscard]] HttpResponse take_response() override;
  [[nodiscard]] std::string ignored_fields() const override { return {}; }
  [[nodiscard]] TokenCounts num_tokens() const override { return {}; }
  [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> waiting_since() const override { return std::nullopt; }
  void time_out() override {}
  void abort() override;

 private:
  [[nodiscard]] bool has_stream() const { return call_->is_stream(); }

  std::shared_ptr<UpstreamCall> call_;
  std::shared_ptr<ModelPool::Hold> hold_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  Wake wake_;
  std::uint32_t retry_after_s_;
  std::string model_name_;
  std::optional<Error> error_;  // the model is not available
};

}  // namespace quire
