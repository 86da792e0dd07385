// Requests that go on from another one: siblings, which have a prompt in common and leave the first when it is planned, and children of one
// that puts out tokens already.
//
//   expected   the core does not know it: its elder's prompt is not planned yet   expect_siblings
//   live       forked, or added alone where the elder ended or could not be forked
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "engine/loop/step_loop.h"

namespace quire {
namespace {

RequestView live_view(const Core& core, RequestId id) {
  const std::optional<RequestView> view = core.view(id);
  QUIRE_CHECK(view.has_value(), "the core knows who is live");
  return *view;
}

}  // namespace

void StepLoop::expect_siblings(const Submission& submission) {
  if (submission.request.n == 1) return;
  elders_.push_back(submission.id);
  for (std::uint32_t i = 1; i < submission.request.n; ++i) {
    make_live(sibling(submission, i), submission, i).elder = submission.id;
    requests_.at(submission.id).siblings.push_back(sibling(submission, i));
  }
}

// Of each that computes the last token of its prompt in this plan: what it has then, it has before the next plan runs.
void StepLoop::fork_siblings(const StepPlan& plan) {
  if (elders_.empty()) return;
  for (const ScheduledRequest& s : plan.scheduled) {
    if (!s.samples || std::erase(elders_, s.id) == 0) continue;
    for (const RequestId id : std::exchange(requests_.at(s.id).siblings, {})) fork_sibling(s.id, id);
  }
}

void StepLoop::fork_sibling(RequestId elder, RequestId id) {
  Live& live = requests_.at(id);
  live.elder.reset();
  live.prompt_logprobs = requests_.at(elder).prompt_logprobs;
  live.sampling.prompt_logprobs.reset();  // the elder's are computed in this plan at the latest
  const ForkRequest child{.id = id, .arrival_time = clock_->now_s(), .num_tokens = live.num_prompt_tokens, .sampling = &live.sampling};
  if (!core_->fork(elder, child, {.now = clock_->now_s()})) add_alone(id, live, live_view(*core_, elder));
}

// They go on without the one that ends before its prompt was planned.
void StepLoop::part_from_siblings(RequestId elder, Live& live) {
  if (live.siblings.empty()) return;
  std::erase(elders_, elder);
  for (const RequestId id : std::exchange(live.siblings, {})) add_alone(id, requests_.at(id), live_view(*core_, elder));
}

void StepLoop::add_alone(RequestId id, Live& live, const RequestView& elder) {
  live.elder.reset();
  live.sampling.prompt_logprobs = requests_.at(elder.id).sampling.prompt_logprobs;
  make_prompt_room(live);
  NewRequest request = request_of(id, live);
  request.prompt = elder.tokens.first(live.num_prompt_tokens);
  request.priority = elder.priority;
  const RequestTags tags{.tenant = elder.tags->tenant, .hints = elder.tags->hints};
  request.tags = &tags;
  request.cache_salt = elder.cache_salt;
  const Result<void> added = core_->add(request, {.now = clock_->now_s()});
  QUIRE_CHECK(added.has_value(), "the core takes what it took of the elder");
  if (live.structured_output != nullptr) options_.grammars->add(id, live.structured_output);
}

void StepLoop::fork(const Fork& fork) {
  look_for_news();
  for (std::uint32_t i = 0; i < fork.options.n; ++i) {
    const RequestId id{fork.first.value + i};
    Live& child = requests_[id];
    child.sink = fork.sink;
    child.arrival_s = fork.arrival_s;
    if (const Result<void> forked = fork_one(fork, i, child); !forked) {
      end(id, child, FinishReason::error, forked.error().to_string());
      requests_.erase(id);
    }
  }
}

Result<void> StepLoop::fork_one(const Fork& fork, std::uint32_t number, Live& child) {
  const auto parent = requests_.find(fork.parent);
  if (parent == requests_.end() || parent->second.ended)
    return fail(ErrorCode::not_found, "parent", "the request has ended", "fork one before it ends");
  if (parent->second.search.has_value())
    return fail(ErrorCode::unsupported, "parent", "what a beam search finds is not known before it is over", "fork another request");
  if (parent->second.session != nullptr)
    return fail(ErrorCode::unsupported, "parent", "is a session: what comes next depends on its client", "fork another request");
  // Of one that is expected itself, the elder has what is computed.
  const std::optional<RequestId> elder = parent->second.elder;
  const RequestId id{fork.first.value + number};
  const std::uint64_t own_seed = Random(options_.seed ^ Random(id.value).next()).next();
  child.sampling = parent->second.sampling;
  child.sampling.prompt_logprobs.reset();
  child.sampling.seed = fork.options.seed.has_value() ? *fork.options.seed + number : own_seed;
  child.sampling.max_tokens = fork.options.max_tokens.value_or(child.sampling.max_tokens);
  child.num_prompt_tokens = parent->second.num_prompt_tokens;
  child.structured_output = parent->second.structured_output;
  const ForkRequest request{.id = id,
                            .arrival_time = clock_->now_s(),
                            .num_tokens = elder.has_value() ? child.num_prompt_tokens : 0,
                            .max_tokens = child.sampling.max_tokens,
                            .sampling = &child.sampling};
  if (Result<void> forked = core_->fork(elder.value_or(fork.parent), request, {.now = clock_->now_s()}); !forked) return forked;
  RequestOutput output;
  output.id = id;
  const auto outputs = live_view(*core_, id).tokens.subspan(child.num_prompt_tokens);
  output.tokens.assign(outputs.begin(), outputs.end());
  if (child.sampling.logprobs.has_value()) output.logprobs.resize(outputs.size());
  send(child.sink, std::move(output));
  return {};
}

}  // namespace quire
