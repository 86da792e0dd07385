// Forks siblings when a plan computes the leader's last prompt token, and children of clients' forks between two steps. Called by the step
// loop on the engine thread. Each id that a client knows gets a last output. A fork that is not possible therefore ends the child with an
// error, and never stops the program.
#include "engine/requests/live_forks.h"

#include <string>
#include <utility>

#include "base/check.h"

namespace quire {
namespace {

RequestView live_view(const Core& core, RequestId id) {
  const std::optional<RequestView> view = core.view(id);
  QUIRE_CHECK(view.has_value(), "the core has every live request");
  return *view;
}

// Returns the error with the client's field: the core names its option, but the client asked for `n` children.
Error for_client(Error refusal) {
  if (refusal.code == ErrorCode::overloaded) refusal.field = "n";
  return refusal;
}

}  // namespace

void LiveForks::expect(const Submission& submission) {
  if (submission.request.n == 1) return;
  leaders_.push_back(submission.id);
  for (std::uint32_t i = 1; i < submission.request.n; ++i) {
    live_.make(sibling(submission, i), submission, i).leader = submission.id;
    live_.at(submission.id).siblings.push_back(sibling(submission, i));
  }
}

void LiveForks::planned(const StepPlan& plan) {
  if (leaders_.empty()) return;
  for (const ScheduledRequest& s : plan.scheduled) {
    if (!s.samples || std::erase(leaders_, s.id) == 0) continue;
    for (const RequestId id : std::exchange(live_.at(s.id).siblings, {})) fork_sibling(s.id, id);
  }
}

void LiveForks::fork_sibling(RequestId leader, RequestId id) {
  LiveRequest& live = live_.at(id);
  live.leader.reset();
  live.prompt_logprobs = live_.at(leader).prompt_logprobs;
  live.prompt_experts = live_.at(leader).prompt_experts;
  live.sampling.prompt_logprobs.reset();  // the log probabilities of the leader are complete after this plan
  const ForkRequest child{
      .id = id, .name = live.name, .arrival_time = live_.now_s(), .num_tokens = live.num_prompt_tokens, .sampling = &live.sampling};
  if (!core_.fork(leader, child, {.now = live_.now_s()})) add_unforked(id, live_view(core_, leader));
}

void LiveForks::part(RequestId leader) {
  LiveRequest& live = live_.at(leader);
  std::erase(leaders_, leader);  // also if all siblings that waited for the leader have ended
  for (const RequestId id : std::exchange(live.siblings, {})) add_unforked(id, live_view(core_, leader));
}

void LiveForks::add_unforked(RequestId id, const RequestView& leader) {
  LiveRequest& live = live_.at(id);
  live.leader.reset();
  live.sampling.prompt_logprobs = live_.at(leader.id).sampling.prompt_logprobs;
  allocate_prompt_outputs(live);
  NewRequest request = live_.request_of(id, live);
  request.prompt = leader.tokens.first(live.num_prompt_tokens);
  request.priority = leader.priority;
  const RequestTags tags{.tenant = leader.tags->tenant,
                         .is_background = leader.tags->is_background,
                         .retention_s = leader.tags->retention_s,
                         .hints = leader.tags->hints};
  request.tags = &tags;
  request.cache_salt = leader.cache_salt;
  live_.add_to_core(request, live);
}

void LiveForks::end_expected(RequestId id, FinishReason reason) {
  LiveRequest& live = live_.at(id);
  QUIRE_CHECK(live.leader.has_value(), "the fork has not been passed to the core");
  std::erase(live_.at(*live.leader).siblings, id);
  live_.end(id, live, reason);
  live_.forget(id);
}

void LiveForks::end_siblings(RequestId leader, const std::string& error) {
  std::erase(leaders_, leader);
  for (const RequestId id : std::exchange(live_.at(leader).siblings, {})) {
    live_.end(id, live_.at(id), FinishReason::error, error);
    live_.forget(id);
  }
}

void LiveForks::fork(const Fork& fork) {
  for (std::uint32_t i = 0; i < fork.options.n; ++i) {
    const RequestId id{fork.first.value + i};
    LiveRequest& child = live_.make_empty(id);
    child.sink = fork.sink;
    child.arrival_s = fork.arrival_s;
    if (const Result<void> forked = fork_one(fork, i, child); !forked) {
      Error refusal = for_client(forked.error());
      std::string text = refusal.to_string();
      live_.end(id, child, FinishReason::error, std::move(text), std::move(refusal));
      live_.forget(id);
    }
  }
}

void LiveForks::cancel(const Fork& fork, FinishReason reason) {
  for (std::uint32_t i = 0; i < fork.options.n; ++i) {
    LiveRequest child;
    child.sink = fork.sink;
    child.arrival_s = fork.arrival_s;
    live_.end({fork.first.value + i}, child, reason);
  }
}

Result<void> LiveForks::fork_one(const Fork& fork, std::uint32_t number, LiveRequest& child) {
  const LiveRequest* parent = live_.find_open(fork.parent);
  if (parent == nullptr) return fail(ErrorCode::not_found, "parent", "the request has ended", "fork a request before it ends");
  if (parent->search.has_value())
    return fail(ErrorCode::unsupported, "parent", "a request with beam search cannot be forked", "fork a request without beam search");
  // If the parent itself is not forked yet, its leader has the computed tokens.
  const std::optional<RequestId> leader = parent->leader;
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
                            .num_tokens = leader.has_value() ? child.num_prompt_tokens : 0,
                            .max_tokens = child.sampling.max_tokens,
                            .resumable = parent->session != nullptr,
                            .waits_for_input = parent->session != nullptr && parent->session->waits,
                            .sampling = &child.sampling};
  if (Result<void> forked = core_.fork(leader.value_or(fork.parent), request, {.now = live_.now_s()}); !forked) return forked;
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
  for (const RequestId leader : leaders_) num += static_cast<std::uint32_t>(live_.at(leader).siblings.size());
  return num;
}

}  // namespace quire
