// The table of requests that clients wait for. An entry is made when a request is taken, and is removed when the core retires the request.
// Called on the engine thread by the step loop and by the parts that move requests (forks, sessions, searches, failures). Every end of a
// request passes through this file, so that each client gets one last output, and counts and tables agree.
#include "engine/requests/live_requests.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/random.h"

namespace quire {
namespace {

RequestStatus status_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
      return RequestStatus::finished_stopped;
    case FinishReason::length:
      return RequestStatus::finished_length;
    case FinishReason::abort:
      return RequestStatus::finished_aborted;
    case FinishReason::error:
      return RequestStatus::finished_error;
    case FinishReason::repetition:
      return RequestStatus::finished_repetition;
  }
  return RequestStatus::finished_aborted;
}

}  // namespace

void allocate_prompt_outputs(LiveRequest& live) {
  live.prompt_experts = live.sampling.routed_experts ? std::make_shared<std::vector<std::uint16_t>>() : nullptr;
  if (live.sampling.prompt_logprobs.has_value())
    live.prompt_logprobs = std::make_shared<std::vector<PositionLogprobs>>(live.num_prompt_tokens - 1);
}

LiveRequests::LiveRequests(Core& core, Options options) : core_(core), options_(std::move(options)) {}

LiveRequest& LiveRequests::make(RequestId id, const Submission& submission, std::uint32_t number) {
  const auto [place, fresh] = requests_.try_emplace(id);
  QUIRE_CHECK(fresh, "a request ID is used once");
  LiveRequest& live = place->second;
  live.sampling = submission.request.sampling;
  live.sampling.seed = live.sampling.seed.has_value() ? *live.sampling.seed + number : seed_of(id);
  live.sink = submission.sink;
  live.name = submission.request.name;
  live.pooling = submission.request.pooling;
  live.num_prompt_tokens = static_cast<std::uint32_t>(submission.request.prompt.size());
  live.arrival_s = submission.arrival_s;
  if (number > 0)
    live.structured_output = requests_.at(submission.id).structured_output;
  else if (submission.request.structured_output.has_value())
    live.structured_output = std::make_shared<const StructuredOutput>(*submission.request.structured_output);
  if (submission.adapter != nullptr)
    live.adapter = number > 0 ? requests_.at(submission.id).adapter : options_.adapters->hold(submission.adapter);
  if (submission.encoder_inputs != nullptr) live.inputs = options_.encoder_inputs->hold(id, submission.encoder_inputs);
  note_adapter(live);
  return live;
}

void LiveRequests::share_inputs(RequestId parent, RequestId id, LiveRequest& child) {
  if (options_.encoder_inputs != nullptr) child.inputs = options_.encoder_inputs->hold(id, options_.encoder_inputs->find(parent));
}

LiveRequest* LiveRequests::find(RequestId id) {
  const auto found = requests_.find(id);
  return found == requests_.end() ? nullptr : &found->second;
}

LiveRequest* LiveRequests::find_open(RequestId id) {
  LiveRequest* live = find(id);
  return live == nullptr || live->ended ? nullptr : live;
}

std::vector<RequestId> LiveRequests::open_ids() const {
  std::vector<RequestId> ids;
  for (const auto& [id, live] : requests_)
    if (!live.ended) ids.push_back(id);
  std::ranges::sort(ids);
  return ids;
}

std::uint64_t LiveRequests::seed_of(RequestId id) const {
  return Random(options_.seed ^ Random(id.value).next()).next();
}

NewRequest LiveRequests::request_of(RequestId id, const LiveRequest& live) const {
  NewRequest request;
  request.id = id;
  request.name = live.name;
  request.arrival_time = live.arrival_s;
  request.pooling = live.pooling;
  request.structured_output = live.structured_output != nullptr;
  request.max_tokens = live.sampling.max_tokens;
  request.min_tokens = live.sampling.min_tokens;
  if (!live.sampling.ignore_eos) request.eos_ids = options_.eos_ids;
  request.stop_token_ids = live.sampling.stop_token_ids;
  request.repetition = live.sampling.repetition;
  request.skip_reading_prefix_cache = needs_all_rows(live.sampling);
  request.loads_nothing = request.skip_reading_prefix_cache;
  request.sampling = &live.sampling;
  if (live.inputs != nullptr) request.multimodal = live.inputs->features();
  set_lora_fields(live.adapter.get(), request);
  return request;
}

void LiveRequests::add_to_core(const NewRequest& request, const LiveRequest& live) {
  const Result<void> added = core_.add(request, {.now = now_s()});
  QUIRE_CHECK(added.has_value(), "the core accepts every validated request");
  if (live.structured_output != nullptr) options_.grammars->add(request.id, live.structured_output, request.resumable);
}

void LiveRequests::end(RequestId id, LiveRequest& live, FinishReason reason, std::string error, std::optional<Error> refusal) {
  RequestOutput output;
  output.id = id;
  output.finished = true;
  output.reason = reason;
  output.error = std::move(error);
  output.refusal = std::move(refusal);
  output.num_cached_tokens = live.num_cached_tokens;
  output.waited_s = live.waited_s;
  send(live, std::move(output));
  note_end(id, live, reason);
}

void LiveRequests::note_adapter(const LiveRequest& live) {
  if (live.adapter != nullptr) counts_.adapter_waits(live.adapter->name);
}

void LiveRequests::note_admission(RequestId id) {
  admitted_.push_back(id);
  LiveRequest* const live = find_open(id);
  if (live == nullptr || live->adapter == nullptr || std::exchange(live->runs, true)) return;
  counts_.adapter_runs(live->adapter->name);
}

void LiveRequests::note_end(RequestId id, LiveRequest& live, FinishReason reason) {
  live.ended = true;
  if (live.adapter != nullptr) counts_.adapter_ends(live.adapter->name, live.runs);
  options_.tools->forget(id);
  if (live.structured_output != nullptr) options_.grammars->remove(id);
  ended_.push_back(id);
  counts_.ended(reason, now_s() - live.arrival_s);
}

FinishEffect LiveRequests::finish(RequestId id, LiveRequest& live, FinishReason reason, std::string error, std::optional<Error> refusal) {
  const FinishEffect effect = core_.finish(id, status_of(reason), {.now = now_s()});
  end(id, live, reason, std::move(error), std::move(refusal));
  if (effect == FinishEffect::retired) forget(id);
  return effect;
}

void LiveRequests::note_tokens(RequestId id, LiveRequest& live, std::size_t num_tokens, double now_s) {
  if (live.last_token_s < 0.0) {
    prefilled_.push_back(id);
    counts_.first_tokens(num_tokens, live.num_prompt_tokens, live.num_cached_tokens, now_s - live.arrival_s);
  } else {
    counts_.next_tokens(num_tokens, now_s - live.last_token_s);
  }
  live.last_token_s = now_s;
}

void LiveRequests::clear_changes() {
  admitted_.clear();
  prefilled_.clear();
  ended_.clear();
}

}  // namespace quire
