// Holds requests with images until the images are encoded; only then do the requests go to the core. Called by the step loop between two
// steps. A request in this table was accepted and is unknown to the core, so every command that ends requests must also search this table.
#include "engine/requests/live_images.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/requests/live_requests.h"

namespace quire {

// Returns how many of the request's tokens would be found in the prefix cache if the request were admitted now.
std::uint32_t LiveImages::num_cached_tokens(const Submission& submission) const {
  NewRequest request;
  request.prompt = submission.request.prompt;
  request.max_tokens = 1;
  request.cache_salt = submission.request.cache_salt;
  request.skip_reading_prefix_cache = request.loads_nothing = needs_all_rows(submission.request.sampling);
  request.block_hashes = submission.names();
  request.multimodal = submission.encoder_inputs->features();
  set_lora_fields(submission.adapter.get(), request);
  const auto found = core_.probe(request);
  return found ? found->num_local_tokens : 0;
}

bool LiveImages::take(Submission& submission) {
  const auto shown = worker_.take_images(std::exchange(submission.request.pictures, {}));
  submission.encoder_inputs = std::make_shared<const RequestInputs>(RequestInputs{.pictures = shown});
  if (shown->are_done()) return false;
  const std::uint32_t num_cached = num_cached_tokens(submission);
  std::vector<std::shared_ptr<EncodedImage>> needed;
  for (std::size_t i = 0; i < shown->pictures.size(); ++i)
    if (shown->features[i].position.end() > num_cached && !shown->pictures[i]->is_done) needed.push_back(shown->pictures[i]);
  if (needed.empty()) return false;
  worker_.encode_ahead(needed);
  waiting_.push_back({.submission = std::move(submission), .needed = std::move(needed)});
  return true;
}

std::vector<LiveImages::Waiting> LiveImages::take_ready() {
  std::vector<Waiting> ready;
  if (waiting_.empty()) return ready;
  const auto is_ready = [](const Waiting& one) {
    return std::ranges::all_of(one.needed, [](const auto& picture) { return picture->is_done.load(); });
  };
  std::deque<Waiting> left;
  for (Waiting& one : waiting_)
    if (is_ready(one))
      ready.push_back(std::move(one));
    else
      left.push_back(std::move(one));
  waiting_ = std::move(left);
  return ready;
}

std::vector<RequestId> LiveImages::Waiting::ids() const {
  std::vector<RequestId> ids;
  ids.reserve(submission.request.n);
  for (std::uint32_t i = 0; i < submission.request.n; ++i) ids.push_back(sibling(submission, i));
  for (const Fork& fork : forks)
    for (std::uint32_t i = 0; i < fork.options.n; ++i) ids.push_back({fork.first.value + i});
  return ids;
}

std::deque<LiveImages::Waiting>::iterator LiveImages::find(RequestId id) {
  return std::ranges::find_if(waiting_, [id](const Waiting& one) {
    const auto is_child = [id](const Fork& fork) { return id.value - fork.first.value < fork.options.n; };
    return id.value - one.submission.id.value < one.submission.request.n || std::ranges::any_of(one.forks, is_child);
  });
}

std::uint32_t LiveImages::num_waiting() const {
  std::size_t num = 0;
  for (const Waiting& one : waiting_) num += one.ids().size() - one.submission.ended.size();
  return static_cast<std::uint32_t>(num);
}

bool LiveImages::fork(const Fork& fork) {
  const auto found = find(fork.parent);
  if (found == waiting_.end()) return false;
  found->forks.push_back(fork);
  return true;
}

bool LiveImages::append(SessionTokens& input) {
  const auto found = find(input.id);
  if (found == waiting_.end()) return false;
  if (input.id == found->submission.id)
    found->submission.inputs.push_back(std::move(input.tokens));
  else
    found->inputs.push_back(std::move(input));
  return true;
}

LiveImages::Ended LiveImages::end(RequestId id, FinishReason reason, Waiting& whole) {
  const auto found = find(id);
  if (found == waiting_.end()) return Ended::unknown;
  auto& ended = found->submission.ended;
  if (std::ranges::find(ended, id, &FinishCommand::id) == ended.end()) ended.push_back({id, reason});
  if (ended.size() < found->ids().size()) return Ended::one;
  whole = std::move(*found);
  waiting_.erase(found);
  return Ended::all;
}

std::vector<RequestId> LiveImages::ids() const {
  std::vector<RequestId> ids;
  for (const Waiting& one : waiting_) std::ranges::copy(one.ids(), std::back_inserter(ids));
  return ids;
}

}  // namespace quire
