// Manages the core's requests that beam searches consist of. Called by the step loop on the engine thread. A beam is continued or released
// only while it waits after its token, when no step computes it. The core may have at most one beam more than the width of a search; its
// limits allow for that (resolve_options.cpp).
#include "engine/requests/searches.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace quire {
namespace {

// Distance between the arrival times of a search's beams. With equal times they could preempt each other forever
// (ForkRequest::arrival_time).
constexpr double kBeamArrivalGap_s = 1e-6;

// Returns the sampling parameters of beams. Tokens are sampled greedily: the sampled token is dropped, and only its alternatives are used.
std::shared_ptr<const SamplingParams> sampling_of(const EngineRequest& given) {
  SamplingParams sampling;
  sampling.temperature = 0.0F;
  sampling.logprobs = std::max(2 * given.n, given.sampling.logprobs.value_or(0));
  return std::make_shared<const SamplingParams>(std::move(sampling));
}

}  // namespace

BeamSearches::BeamSearches(Core& core, std::vector<TokenId> eos_ids, Grammars* grammars, LiveEncoderInputs* encoder_inputs)
    : core_(&core), grammars_(grammars), encoder_inputs_(encoder_inputs), eos_ids_(std::move(eos_ids)) {}

NewRequest BeamSearches::request_of(RequestId id, const Search& search) const {
  NewRequest request;
  request.id = id;
  request.name = search.name;
  request.prompt = search.prompt;
  request.priority = search.priority;
  request.arrival_time = search.arrival_s;
  request.max_tokens = 1;
  request.resumable = true;
  request.structured_output = search.structured_output != nullptr;
  request.cache_salt = search.cache_salt;
  request.tags = &search.tags;
  request.sampling = search.sampling.get();
  if (search.inputs != nullptr) request.multimodal = search.inputs->features();
  set_lora_fields(search.adapter.get(), request);
  return request;
}

BeamSearches::Beam BeamSearches::new_beam(RequestId search, std::uint32_t beam, const std::shared_ptr<const RequestInputs>& inputs) {
  const RequestId id{next_beam_++};
  beams_.emplace(id, BeamPosition{search, beam});
  return {.id = id, .inputs = inputs == nullptr ? nullptr : encoder_inputs_->hold(id, inputs)};
}

void BeamSearches::add(Submission& submission, SharedLease adapter, double now_s) {
  EngineRequest& given = submission.request;
  QUIRE_CHECK(given.beam_search.has_value() && given.n <= kMaxWidth, "a beam search has valid parameters");
  BeamSearch beams({.width = given.n,
                    .num_prompt_tokens = static_cast<std::uint32_t>(given.prompt.size()),
                    .max_tokens = given.sampling.max_tokens,
                    .length_penalty = given.beam_search->length_penalty,
                    .ignore_eos = given.sampling.ignore_eos,
                    .eos_ids = eos_ids_,
                    .logprobs = given.sampling.logprobs});
  const auto [place, fresh] = searches_.try_emplace(submission.id, Search{.beams = std::move(beams),
                                                                          .width = given.n,
                                                                          .open = {new_beam(submission.id, 0, submission.encoder_inputs)},
                                                                          .prompt = std::move(given.prompt),
                                                                          .sampling = sampling_of(given),
                                                                          .inputs = submission.encoder_inputs,
                                                                          .structured_output = nullptr,
                                                                          .adapter = std::move(adapter),
                                                                          .name = std::move(given.name),
                                                                          .arrival_s = submission.arrival_s,
                                                                          .priority = given.priority,
                                                                          .cache_salt = std::move(given.cache_salt),
                                                                          .tags = {.tenant = std::move(given.tags.tenant),
                                                                                   .is_background = given.tags.is_background,
                                                                                   .retention_s = given.tags.retention_s,
                                                                                   .hints = std::move(given.tags.hints)}});
  QUIRE_CHECK(fresh, "a request ID is used once");
  if (given.structured_output) {
    place->second.structured_output = std::make_shared<const StructuredOutput>(*std::move(given.structured_output));
    grammars_->add_beam(place->second.open[0].id, place->second.structured_output);
  }
  NewRequest request = request_of(place->second.open[0].id, place->second);
  request.block_hashes = {reinterpret_cast<const std::uint8_t*>(submission.block_keys.data()),
                          submission.block_keys.size() * sizeof(BlockHash)};
  const Result<void> added = core_->add(request, {.now = now_s});
  QUIRE_CHECK(added.has_value(), "the core accepts every validated request");
}

std::optional<RequestId> BeamSearches::search_of(RequestId beam) const {
  const auto found = beams_.find(beam);
  return found == beams_.end() ? std::nullopt : std::optional(found->second.search);
}

void BeamSearches::offer(RequestId id, const PositionLogprobs& sampled) {
  const BeamPosition place = beams_.at(id);
  Search& search = searches_.at(place.search);
  Beam& beam = search.open[place.beam];
  QUIRE_CHECK(beam.offer.empty() && sampled.entries.size() > 1 && search.num_missing > 0, "a beam waits for the others after each token");
  beam.offer.assign(sampled.entries.begin() + 1, sampled.entries.end());  // the first entry is the sampled token
  if (--search.num_missing == 0) ready_.push_back(place.search);
}

std::vector<SearchStep> BeamSearches::advance(double now_s) {
  std::vector<SearchStep> steps;
  for (const RequestId id : std::exchange(ready_, {})) {
    Search& search = searches_.at(id);
    std::vector<std::vector<TokenLogprob>> offers;
    offers.reserve(search.open.size());
    for (Beam& beam : search.open) offers.push_back(std::move(beam.offer));
    search.beams.step(offers);
    steps.push_back({.search = id, .width = search.width, .num_tokens = static_cast<std::uint32_t>(offers.size())});
    if (search.beams.is_over()) {
      steps.back().best = search.beams.best();
      end(id, now_s);
    } else {
      advance_search(id, search, now_s);
    }
  }
  return steps;
}

// Continues a search. Beams without a successor end first, so that the core has at most one request more than the width of the search.
void BeamSearches::advance_search(RequestId id, Search& search, double now_s) {
  std::vector<Beam> before = std::exchange(search.open, {});
  const std::span<const BeamSearch::Beam> chosen = search.beams.beams();
  for (std::uint32_t parent = 0; parent < before.size(); ++parent)
    if (std::ranges::find(chosen, parent, &BeamSearch::Beam::parent) == chosen.end()) close(before[parent], search, now_s);
  search.open.resize(chosen.size());
  for (std::uint32_t parent = 0; parent < before.size(); ++parent) {
    for (std::uint32_t i = 0; i < chosen.size(); ++i) {
      if (chosen[i].parent != parent) continue;
      search.open[i] = new_beam(id, i, search.inputs);
      advance_beam(before[parent], chosen[i], i, search, now_s);
    }
    close(before[parent], search, now_s);
  }
  search.num_missing = static_cast<std::uint32_t>(chosen.size());
}

void BeamSearches::advance_beam(Beam& parent, const BeamSearch::Beam& chosen, std::uint32_t beam, Search& search, double now_s) {
  const RequestId child = search.open[beam].id;
  if (search.structured_output != nullptr) grammars_->follow(parent.id, child, chosen.token);
  const double arrival_s = search.arrival_s + kBeamArrivalGap_s * beam;
  if (!parent.in_core || !fork(parent, chosen, child, search, arrival_s, now_s)) add_recomputed(beam, child, search, now_s);
}

// Forks a beam. Returns false if the core does not fork requests of this kind.
bool BeamSearches::fork(const Beam& parent, const BeamSearch::Beam& chosen, RequestId child, const Search& search, double arrival_s,
                        double now_s) {
  const std::optional<RequestView> view = core_->view(parent.id);
  QUIRE_CHECK(view.has_value() && view->status == RequestStatus::waiting_for_input, "the parent beam is waiting for input");
  const auto num_tokens = static_cast<std::uint32_t>(view->tokens.size()) - 1;  // without the sampled token
  const ForkRequest request{.id = child,
                            .arrival_time = arrival_s,
                            .num_tokens = num_tokens,
                            .next_token = chosen.token,
                            .max_tokens = num_tokens + 2 - view->num_prompt_tokens,
                            .resumable = true,
                            .sampling = search.sampling.get()};
  const Result<void> forked = core_->fork(parent.id, request, {.now = now_s});
  QUIRE_CHECK(forked.has_value() || forked.error().code == ErrorCode::unsupported, "a successor of an ended beam can be forked");
  return forked.has_value();
}

void BeamSearches::add_recomputed(std::uint32_t beam, RequestId id, const Search& search, double now_s) {
  // The blocks may still be in the prefix cache; then little is computed again.
  std::vector<TokenId> tokens = search.prompt;
  std::ranges::copy(search.beams.outputs(beam), std::back_inserter(tokens));
  NewRequest request = request_of(id, search);
  request.prompt = tokens;
  request.arrival_time = search.arrival_s + kBeamArrivalGap_s * beam;
  const Result<void> added = core_->add(request, {.now = now_s});
  QUIRE_CHECK(added.has_value(), "the core accepts a beam that was accepted before");
}

void BeamSearches::close(Beam& beam, const Search& search, double now_s) {
  beams_.erase(beam.id);
  if (grammars_ != nullptr) grammars_->remove(beam.id);
  finish_in_core(beam, search, now_s);
}

bool BeamSearches::finish_in_core(Beam& beam, const Search& search, double now_s) {
  if (!std::exchange(beam.in_core, false)) return false;
  const FinishEffect effect = core_->finish(beam.id, RequestStatus::finished_stopped, {.now = now_s});
  if (effect == FinishEffect::in_flight) retiring_.emplace(beam.id, RetiringBeam{search.adapter, search.sampling, beam.inputs});
  return true;
}

bool BeamSearches::release_waiting_beams(double now_s) {
  bool has_given = false;
  for (auto& [id, search] : searches_) {
    for (Beam& beam : search.open)
      if (!beam.offer.empty()) has_given |= finish_in_core(beam, search, now_s);
  }
  return has_given;
}

void BeamSearches::end(RequestId id, double now_s) {
  const auto found = searches_.find(id);
  QUIRE_CHECK(found != searches_.end(), "the beam search has not ended");
  for (Beam& beam : found->second.open) close(beam, found->second, now_s);
  std::erase(ready_, id);
  searches_.erase(found);
}

}  // namespace quire
