// Called by the step loop between two steps. A request that is here has been accepted and has no place in the core: whatever ends it must
// find it here.
#include "engine/requests/live_pictures.h"

#include <algorithm>
#include <utility>

#include "engine/requests/live_requests.h"

namespace quire {

// As it would be admitted now.
std::uint32_t LivePictures::num_cached_tokens(const Submission& submission) const {
  NewRequest request;
  request.prompt = submission.request.prompt;
  request.max_tokens = 1;
  request.cache_salt = submission.request.cache_salt;
  request.skip_reading_prefix_cache = request.loads_nothing = needs_rows(submission.request.sampling);
  request.block_hashes = submission.names();
  request.multimodal = submission.request.sampling.pictures->features;
  name_adapter(submission.adapter.get(), request);
  const auto found = core_.probe(request);
  return found ? found->num_local_tokens : 0;
}

bool LivePictures::take(Submission& submission) {
  const auto shown = worker_.take_pictures(std::exchange(submission.request.pictures, {}));
  submission.request.sampling.pictures = shown;
  if (shown->are_done()) return false;
  const std::uint32_t num_cached = num_cached_tokens(submission);
  std::vector<std::shared_ptr<EncodedPicture>> needed;
  for (std::size_t i = 0; i < shown->pictures.size(); ++i)
    if (shown->features[i].position.end() > num_cached && !shown->pictures[i]->is_done) needed.push_back(shown->pictures[i]);
  if (needed.empty()) return false;
  worker_.encode_ahead(needed);
  waiting_.push_back({std::move(submission), std::move(needed)});
  return true;
}

std::vector<Submission> LivePictures::take_ready() {
  std::vector<Submission> ready;
  const auto is_ready = [](const Waiting& one) {
    return std::ranges::all_of(one.needed, [](const auto& picture) { return picture->is_done.load(); });
  };
  for (Waiting& one : waiting_)
    if (is_ready(one)) ready.push_back(std::move(one.submission));
  std::erase_if(waiting_, is_ready);
  return ready;
}

std::uint32_t LivePictures::num_waiting() const {
  std::uint32_t num = 0;
  for (const Waiting& one : waiting_) num += one.submission.request.n - static_cast<std::uint32_t>(one.submission.ended.size());
  return num;
}

LivePictures::Ended LivePictures::end(RequestId id, FinishReason reason, Submission& whole) {
  const auto found =
      std::ranges::find_if(waiting_, [id](const Waiting& one) { return id.value - one.submission.id.value < one.submission.request.n; });
  if (found == waiting_.end()) return Ended::unknown;
  auto& ended = found->submission.ended;
  if (std::ranges::find(ended, id, &Ending::id) == ended.end()) ended.push_back({id, reason});
  if (ended.size() < found->submission.request.n) return Ended::one;
  whole = std::move(found->submission);
  waiting_.erase(found);
  return Ended::all;
}

std::vector<RequestId> LivePictures::ids() const {
  std::vector<RequestId> ids;
  for (const Waiting& one : waiting_)
    for (std::uint32_t i = 0; i < one.submission.request.n; ++i) ids.push_back(sibling(one.submission, i));
  return ids;
}

}  // namespace quire
