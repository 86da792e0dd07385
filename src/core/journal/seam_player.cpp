// Seams that return recorded answers. Called on the core's thread, like the real seams. These seams call no other code, so a run can be
// repeated on a machine without the connector or the grammar. If a record does not match, a seam returns a neutral answer, and the player's
// status reports the mismatch. A record may contain arbitrary numbers, so numbers are clipped to the range of their types.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "core/journal/answer_queue.h"
#include "core/journal/question.h"
#include "quire/base/plan.h"
#include "quire/connector.h"
#include "quire/hash_function.h"
#include "quire/seam_record.h"

namespace quire {
namespace {

class PlayedConnector final : public Connector {
 public:
  explicit PlayedConnector(AnswerQueue& queue) : queue_(&queue) {}
  ExternalMatch match(const RequestView& request, std::uint32_t num_local_tokens) override {
    auto values = queue_->take_numbers(SeamCall::connector_match, request.id, SeamQuestion().add(request).add(num_local_tokens), 3);
    if (!values) return {.num_tokens = 0, .load_async = false};
    const bool is_known = values->next() != 0;
    const auto num_tokens = static_cast<std::uint32_t>(values->next());
    return {.num_tokens = is_known ? std::optional(num_tokens) : std::nullopt, .load_async = values->next() != 0};
  }
  void allocated(const RequestView& /*request*/, GroupBlocks /*blocks*/, std::uint32_t /*num_external_tokens*/) override {}
  bool finished(const RequestView& request, GroupBlocks /*blocks*/) override {
    return queue_->take_flag(SeamCall::connector_finished, request.id, SeamQuestion().add(request));
  }
  void planned(const StepPlan& /*plan*/) override {}
  void plan_transfers(const StepPlan& plan, TransferList& transfers) override {
    const SeamAnswer* answer = queue_->take(SeamCall::connector_plan_transfers, {}, SeamQuestion().add(plan.step.value));
    if (answer == nullptr) return;
    SeamValues values(answer->values);
    while (!values.empty() && !values.is_short()) add(values, transfers);
    if (values.is_short()) queue_->damaged();
  }
  void order_failed(std::size_t num_async, std::span<RequestId> finishing, std::span<RequestId> reported) override {
    QUIRE_CHECK(num_async <= finishing.size(), "requests that waited for their load are among the failed requests");
    const SeamQuestion question =
        SeamQuestion().add(num_async).add(std::span<const RequestId>(finishing)).add(std::span<const RequestId>(reported));
    auto values = queue_->take_numbers(SeamCall::connector_order_failed, {}, question, finishing.size() + reported.size());
    if (!values) return;
    for (RequestId& id : finishing) id.value = values->next();
    for (RequestId& id : reported) id.value = values->next();
  }
  void step_output() override {}
  bool reset() override { return queue_->take_flag(SeamCall::connector_reset, {}); }

 private:
  void add(SeamValues& values, TransferList& transfers) {
    Transfer transfer;
    transfer.request.value = values.next();
    transfer.direction = values.next() == 0 ? TransferDirection::load : TransferDirection::store;
    transfer.need = static_cast<TransferNeed>(std::min<std::uint64_t>(values.next(), 2));
    transfer.group = static_cast<std::uint32_t>(values.next());
    transfer.tier = static_cast<std::uint32_t>(values.next());
    blocks_.clear();
    for (const std::uint64_t block : values.list()) blocks_.push_back(BlockId{static_cast<std::uint32_t>(block)});
    transfer.blocks = blocks_;
    transfer.places = values.list();
    if (!values.is_short()) transfers.add(transfer);
  }

  AnswerQueue* queue_;
  std::vector<BlockId> blocks_;
};

class PlayedEncoderConnector final : public EncoderConnector {
 public:
  explicit PlayedEncoderConnector(AnswerQueue& queue) : queue_(&queue) {}
  bool has(std::string_view identifier) override { return queue_->take_flag(SeamCall::encoder_has, {}, SeamQuestion().add(identifier)); }
  void allocated(const RequestView& /*request*/, std::uint32_t /*index*/) override {}

 private:
  AnswerQueue* queue_;
};

class PlayedGrammar final : public Grammar {
 public:
  explicit PlayedGrammar(AnswerQueue& queue) : queue_(&queue) {}
  bool ready(RequestId id) override { return queue_->take_flag(SeamCall::grammar_ready, id); }
  bool failed(RequestId id) override {
    return queue_->next_is(SeamCall::grammar_failed, id) && queue_->take_flag(SeamCall::grammar_failed, id);
  }
  bool should_advance(const RequestView& request) override {
    return queue_->take_flag(SeamCall::grammar_should_advance, request.id, SeamQuestion().add(request));
  }
  bool accept(RequestId id, std::span<const TokenId> tokens) override {
    return queue_->take_flag(SeamCall::grammar_accept, id, queue_->question().add(tokens));
  }
  std::uint32_t count_valid(RequestId id, std::span<const TokenId> drafts) override {
    auto values = queue_->take_numbers(SeamCall::grammar_count_valid, id, queue_->question().add(drafts), 1);
    return values ? static_cast<std::uint32_t>(values->next()) : 0;
  }
  bool fork(RequestId parent, RequestId child, std::uint32_t num_outputs) override {
    return queue_->take_flag(SeamCall::grammar_fork, parent, SeamQuestion().add(child.value).add(num_outputs));
  }

 private:
  AnswerQueue* queue_;
};

class PlayedToolNamer final : public ToolNamer {
 public:
  explicit PlayedToolNamer(AnswerQueue& queue) : queue_(&queue) {}
  std::string tool_of(const RequestView& request) override {
    const SeamAnswer* answer = queue_->take(SeamCall::tool_of, request.id, SeamQuestion().add(request));
    return answer == nullptr ? std::string() : answer->bytes;
  }

 private:
  AnswerQueue* queue_;
};

class PlayedHash final : public HashFunction {
 public:
  explicit PlayedHash(AnswerQueue& queue) : queue_(&queue) {}
  BlockHash hash(const BlockHash* parent, const HashInput& input) override {
    BlockHash name;
    const SeamAnswer* answer = queue_->take(SeamCall::hash, {}, queue_->question().add(parent, input));
    if (answer != nullptr && answer->bytes.size() != name.bytes.size()) queue_->damaged();
    if (answer != nullptr && answer->bytes.size() == name.bytes.size()) std::ranges::copy(answer->bytes, name.bytes.begin());
    return name;
  }

 private:
  AnswerQueue* queue_;
};

}  // namespace

struct SeamPlayer::Impl {
  Impl(SeamRecord given, EventSink* events) : queue(std::move(given)) {
    const SeamRecord& record = queue.record();
    seams = {.connector = record.has_connector ? &connector : nullptr,
             .encoder_connector = record.has_encoder_connector ? &encoder_connector : nullptr,
             .grammar = record.has_grammar ? &grammar : nullptr,
             .tools = record.has_tools ? &tools : nullptr,
             .events = events,
             .hash = record.has_hash ? &hash : nullptr};
  }

  AnswerQueue queue;
  PlayedConnector connector{queue};
  PlayedEncoderConnector encoder_connector{queue};
  PlayedGrammar grammar{queue};
  PlayedToolNamer tools{queue};
  PlayedHash hash{queue};
  CoreSeams seams;
};

SeamPlayer::SeamPlayer(SeamRecord record, EventSink* events) : impl_(std::make_unique<Impl>(std::move(record), events)) {}
SeamPlayer::~SeamPlayer() = default;

CoreSeams SeamPlayer::seams() const {
  return impl_->seams;
}

void SeamPlayer::give(std::vector<SeamAnswer>& answers) {
  impl_->queue.give(answers);
}

Result<void> SeamPlayer::status() const {
  return impl_->queue.status();
}

std::size_t SeamPlayer::num_left() const {
  return impl_->queue.num_left();
}

}  // namespace quire
