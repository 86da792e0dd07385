// The engine thread's, called by the step loop: siblings once a plan has their elder's last token, children of clients' forks between two
// steps. An id that a client has been given always gets a last output, so a fork that cannot be made ends it with an error here, and
// nothing stops the program for it.
#include "engine/requests/live_forks.h"

#include <utility>

#include "base/check.h"

namespace quire {
namespace {

RequestView live_view(const Core& core, RequestId id) {
  const std::optional<RequestView> view = core.view(id);
  QUIRE_CHECK(view.has_value(), "the core knows who is live");
  return *view;
}

}  // namespace

void LiveForks::expect(const Submission& submission) {
  if (submission.request.n == 1) return;
  elders_.push_back(submission.id);
  for (std::uint32_t i = 1; i < submission.request.n; ++i) {
    live_.make(sibling(submission, i), submission, i).elder = submission.id;
    live_.at(submission.id).siblings.push_back(sibling(submission, i));
  }
}

void LiveForks::planned(const StepPlan& plan) {
  if (elders_.empty()) return;
  for (const ScheduledRequest& s : plan.scheduled) {
    if (!s.samples || std::erase(elders_, s.id) == 0) continue;
    for (const RequestId id : std::exchange(live_.at(s.id).siblings, {})) fork_sibling(s.id, id);
  }
}

void LiveForks::fork_sibling(RequestId elder, RequestId id) {
  Live& live = live_.at(id);
  live.elder.reset();
  live.prompt_logprobs = live_.at(elder).prompt_logprobs;
  live.prompt_experts = live_.at(elder).prompt_experts;
  live.sampling.prompt_logprobs.reset();  // the elder's are computed in this plan at the latest
  const ForkRequest child{
      .id = id, .name = live.name, .arrival_time = live_.now_s(), .num_tokens = live.num_prompt_tokens, .sampling = &live.sampling};
  if (!core_.fork(elder, child, {.now = live_.now_s()})) add_alone(id, live_view(core_, elder));
}

void LiveForks::part(RequestId elder) {
  Live& live = live_.at(elder);
  std::erase(elders_, elder);  // also where all that waited for it have ended before
  for (const RequestId id : std::exchange(live.siblings, {})) add_alone(id, live_view(core_, elder));
}

void LiveForks::add_alone(RequestId id, const RequestView& elder) {
  Live& live = live_.at(id);
  live.elder.reset();
  live.sampling.prompt_logprobs = live_.at(elder.id).sampling.prompt_logprobs;
  make_prompt_room(live);
  NewRequest request = live_.request_of(id, live);
  request.prompt = elder.tokens.first(live.num_prompt_tokens);
  request.priority = elder.priority;
  const RequestTags tags{.tenant = elder.tags->tenant, .hints = elder.tags->hints};
  request.tags = &tags;
  request.cache_salt = elder.cache_salt;
  live_.add_to_core(request, live);
}

void LiveForks::end_expected(RequestId id, FinishReason reason) {
  Live& live = live_.at(id);
  QUIRE_CHECK(live.elder.has_value(), "the core does not know it");
  std::erase(live_.at(*live.elder).siblings, id);
  live_.end(id, live, reason);
  live_.forget(id);
}

void LiveForks::fork(const Fork& fork) {
  for (std::uint32_t i = 0; i < fork.options.n; ++i) {
    const RequestId id{fork.first.value + i};
    Live& child = live_.make_empty(id);
    child.sink = fork.sink;
    child.arrival_s = fork.arrival_s;
    if (const Result<void> forked = fork_one(fork, i, child); !forked) {
      live_.end(id, child, FinishReason::error, forked.error().to_string());
      live_.forget(id);
    }
  }
}

void LiveForks::cancel(const Fork& fork, FinishReason reason) {
  for (std::uint32_t i = 0; i < fork.options.n; ++i) {
    Live child;
    child.sink = fork.sink;
    child.arrival_s = fork.arrival_s;
    live_.end({fork.first.value + i}, child, reason);
  }
}

Result<void> LiveForks::fork_one(const Fork& fork, std::uint32_t number, Live& child) {
  const Live* parent = live_.find_open(fork.parent);
  if (parent == nullptr) return fail(ErrorCode::not_found, "parent", "the request has ended", "fork one before it ends");
  if (parent->search.has_value())
    return fail(ErrorCode::unsupported, "parent", "what a beam search finds is not known before it is over", "fork another request");
  // Of one that is expected itself, the elder has what is computed.
  const std::optional<RequestId> elder = parent->elder;
  const RequestId id{fork.first.value + number};
  child.name = fork.options.name;
  child.sampling = parent->sampling;
  child.sampling.prompt_logprobs.reset();
  child.sampling.routed_experts = false;
  child.sampling.seed = fork.options.seed.has_value() ? *fork.options.seed + number : live_.seed_of(id);
  child.sampling.max_tokens = fork.options.max_tokens.value_or(child.sampling.max_tokens);
  child.num_prompt_tokens = parent->num_prompt_tokens;
  child.structured_output = parent->structured_output;
  child.adapter = parent->adapter;
  live_.share_inputs(fork.parent, id, child);
  live_.note_adapter(child);
  const ForkRequest request{.id = id,
                            .name = child.name,
                            .arrival_time = live_.now_s(),
                            .num_tokens = elder.has_value() ? child.num_prompt_tokens : 0,
                            .max_tokens = child.sampling.max_tokens,
                            .resumable = parent->session != nullptr,
                            .waits_for_input = parent->session != nullptr && parent->session->waits,
                            .sampling = &child.sampling};
  if (Result<void> forked = core_.fork(elder.value_or(fork.parent), request, {.now = live_.now_s()}); !forked) return forked;
  if (parent->session != nullptr) sessions_.fork(id, child, *parent->session);
  RequestOutput output;
  output.id = id;
  const RequestView view = live_view(core_, id);
  const auto outputs = view.tokens.subspan(view.num_prompt_tokens);
  output.tokens.assign(outputs.begin(), outputs.end());
  if (child.sampling.logprobs.has_value()) output.logprobs.resize(outputs.size());
  output.input_ended = request.waits_for_input;
  live_.send(child, std::move(output));
  return {};
}

std::uint32_t LiveForks::num_expected() {
  std::uint32_t num = 0;
  for (const RequestId elder : elders_) num += static_cast<std::uint32_t>(live_.at(elder).siblings.size());
  return num;
}

}  // namespace quire
