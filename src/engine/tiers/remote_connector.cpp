// Implements a connector that queries a shared store. Called by the core on the engine thread during steps, so no function waits. An answer
// arrives on the store's thread, which writes only to its query; the next match() of the request uses the answer. Unlike the core, this
// code reads the clock, because how long a request waits for a store is not a decision of the core; a journal records the connector's
// answers.
#include "engine/tiers/remote_connector.h"

#include <utility>

#include "base/check.h"

namespace quire {

RemoteConnector::RemoteConnector(std::unique_ptr<OffloadConnector> offload, SharedStore& store,
                                 std::chrono::steady_clock::duration patience)
    : offload_(std::move(offload)), store_(store), patience_(patience) {}

void RemoteConnector::serve(const TierService& service) {
  asks_ = service.loads;
  offload_->serve(service);
}

ExternalMatch RemoteConnector::match(const RequestView& request, std::uint32_t num_local_tokens) {
  if (!asks_ || was_reset_) return offload_->match(request, num_local_tokens);
  const auto found = questions_.find(request.id.value);
  if (found == questions_.end()) {
    if (begin(request, num_local_tokens)) return {.num_tokens = std::nullopt, .load_async = false};
    return offload_->match(request, num_local_tokens);
  }
  if (const std::shared_ptr<Question> question = found->second; question != nullptr) {
    const bool is_answered = question->is_answered;
    if (!is_answered && std::chrono::steady_clock::now() < question->until) return {.num_tokens = std::nullopt, .load_async = false};
    found->second = nullptr;
    question->is_dropped = true;
    num_timed_out_ += is_answered && question->is_whole ? 0 : 1;
    if (is_answered) learn(*question);
  }
  return offload_->match(request, num_local_tokens);
}

// Sends a query for the blocks that the request could load. Returns false if there is nothing to query.
bool RemoteConnector::begin(const RequestView& request, std::uint32_t num_local_tokens) {
  const auto question = std::make_shared<Question>();
  offload_->append_match_keys(request, num_local_tokens, question->names);
  if (question->names.empty()) return false;
  question->until = std::chrono::steady_clock::now() + patience_;
  questions_.emplace(request.id.value, question);
  store_.ask(
      question->names, [question] { return !question->is_dropped; },
      [question](const SharedStore::Answer& answer) {
        question->has = answer.has;
        question->is_whole = answer.is_whole;
        question->is_answered = true;
      });
  return true;
}

// Updates the ledger with an answer. If the answer is incomplete, a block that it does not list may still exist, so the ledger does not
// change for such blocks.
void RemoteConnector::learn(const Question& question) {
  QUIRE_CHECK(question.has.size() == question.names.size(), "the store answers for each block hash");
  is_learning_ = true;
  for (std::size_t i = 0; i < question.names.size(); ++i)
    if (question.has[i])
      offload_->on_query_hit(question.names[i]);
    else if (question.is_whole)
      offload_->on_query_miss(question.names[i]);
  is_learning_ = false;
}

bool RemoteConnector::finished(const RequestView& request, GroupBlocks blocks) {
  if (const auto found = questions_.find(request.id.value); found != questions_.end()) {
    if (found->second != nullptr) found->second->is_dropped = true;
    questions_.erase(found);
  }
  return offload_->finished(request, blocks);
}

void RemoteConnector::forget_blocks(const RequestView& request) {
  std::vector<OffloadKey> names;
  offload_->append_block_keys(request, names);
  for (const OffloadKey& name : names) store_.mark_untrusted(name);
  offload_->forget_blocks(request);
}

bool RemoteConnector::reset() {
  was_reset_ = true;
  for (auto& [request, question] : questions_)
    if (std::shared_ptr<Question> open = std::exchange(question, nullptr)) open->is_dropped = true;
  return offload_->reset();
}

}  // namespace quire
