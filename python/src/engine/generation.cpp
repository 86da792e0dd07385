#include "engine/generation.h"

#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "errors.h"

namespace quire::python {
namespace {

constexpr std::chrono::milliseconds kSignalPeriod(50);  // Ctrl-C takes effect within this time

nb::list list_of(const std::vector<PositionLogprobs>& positions) {
  nb::list out;
  for (const PositionLogprobs& position : positions) {
    nb::list entries;
    for (const TokenLogprob& entry : position.entries) entries.append(nb::make_tuple(entry.token, entry.logprob, entry.rank));
    out.append(entries);
  }
  return out;
}

}  // namespace

nb::object Output::routed_experts() const {
  if (experts.empty()) return nb::none();
  const nb::bytes raw(reinterpret_cast<const char*>(experts.data()), experts.size() * sizeof(std::uint16_t));
  const nb::object view = nb::steal(PyMemoryView_FromObject(raw.ptr()));
  const std::size_t num_tokens = experts.size() / num_layers / experts_per_layer;
  return view.attr("cast")("H", nb::make_tuple(num_tokens, num_layers, experts_per_layer));
}

// Checks for signals before it takes an output. Outputs may arrive so fast that it never waits, and an output that was taken must not be
// lost.
RequestOutput Generation::wait() {
  while (true) {
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    const nb::gil_scoped_release released;
    if (auto output = mailbox_->take(kSignalPeriod)) return *std::move(output);
  }
}

std::string Generation::text_of(const RequestOutput& output) {
  std::string text;
  const bool stopped = output.finished && output.stop_token >= 0 && !output.tokens.empty() && output.tokens.back() == output.stop_token;
  for (std::size_t i = 0; i + (stopped ? 1 : 0) < output.tokens.size(); ++i) text += text_.push(output.tokens[i]);
  if (output.finished) text += text_.flush();
  return text;
}

Output Generation::next() {
  if (is_finished_) throw nb::stop_iteration();
  RequestOutput output = wait();
  is_finished_ = output.finished;
  if (output.refusal) raise(*output.refusal);
  if (output.finished && output.reason == FinishReason::error) raise_state(output.error.c_str());
  Output out{.tokens = {},
             .text = text_of(output),
             .logprobs = output.logprobs.empty() ? nb::object(nb::none()) : list_of(output.logprobs),
             .prompt_logprobs = output.prompt_logprobs == nullptr ? nb::object(nb::none()) : list_of(*output.prompt_logprobs),
             .experts = output.prompt_experts == nullptr ? std::vector<std::uint16_t>() : *output.prompt_experts,
             .num_layers = shared_->engine->model().num_layers,
             .experts_per_layer = shared_->engine->model().experts_per_token,
             .finish_reason = output.finished ? std::optional<std::string>(finish_reason_name(output.reason)) : std::nullopt,
             .num_cached_tokens = output.num_cached_tokens};
  out.experts.insert(out.experts.end(), output.routed_experts.begin(), output.routed_experts.end());
  out.tokens = std::move(output.tokens);
  return out;
}

Output Generation::rest() {
  Output all = next();
  while (!all.finish_reason) {
    Output more = next();
    all.tokens.insert(all.tokens.end(), more.tokens.begin(), more.tokens.end());
    all.text += more.text;
    all.experts.insert(all.experts.end(), more.experts.begin(), more.experts.end());
    if (!more.logprobs.is_none()) all.logprobs = all.logprobs.is_none() ? more.logprobs : all.logprobs + more.logprobs;
    if (!more.prompt_logprobs.is_none()) all.prompt_logprobs = more.prompt_logprobs;
    all.finish_reason = std::move(more.finish_reason);
    all.num_cached_tokens = std::max(all.num_cached_tokens, more.num_cached_tokens);
  }
  return all;
}

}  // namespace quire::python
