#include "server/models/proxy_answer.h"

#include <fmt/format.h>

#include <utility>

#include "server/http/error_response.h"

namespace quire {

ProxyAnswer::ProxyAnswer(boost::asio::io_context& io, UpstreamRequest request, Wake wake, std::uint32_t retry_after_s)
    : call_(std::make_shared<UpstreamCall>(io, std::move(request), wake)), wake_(std::move(wake)), retry_after_s_(retry_after_s) {}

void ProxyAnswer::send_to(ModelPool& pool, std::size_t model, std::optional<double> keep_alive_s) {
  model_name_ = pool.options().entries[model].name;
  hold_ = pool.request(model, [this, alive = std::weak_ptr(alive_)](Result<std::uint16_t> port) {
    if (alive.expired()) return;
    if (port) return call_->start(*port);
    error_ = std::move(port.error());
    wake_();
  });
  if (keep_alive_s) hold_->keep_alive(*keep_alive_s);
}

bool ProxyAnswer::may_be_refused() const {
  if (error_ || has_stream()) return false;
  return call_->state() == UpstreamCall::State::waiting || call_->state() == UpstreamCall::State::receiving;
}

HttpResponse ProxyAnswer::take_response() {
  if (!error_ && call_->state() == UpstreamCall::State::failed)
    error_ = Error{ErrorCode::unavailable, "", fmt::format("'{}' did not answer: {}", model_name_, call_->failure()), "try again"};
  if (error_) return error_response(*error_, retry_after_s_);
  HttpResponse response = call_->head();
  response.body = call_->take_body();
  return response;
}

void ProxyAnswer::abort() {
  call_->abort();
  hold_.reset();
}

}  // namespace quire
