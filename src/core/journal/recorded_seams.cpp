// Seams that pass the core's calls to the real seams and record their answers. Called on the core's thread. The digest of a question is
// computed before the real seam is called, because the call may change the state that is digested. Calls without an answer are not
// recorded.
#include "core/journal/recorded_seams.h"

#include <string>
#include <vector>

#include "base/check.h"
#include "core/journal/pseudonyms.h"
#include "quire/base/plan.h"
#include "quire/connector.h"
#include "quire/hash_function.h"

namespace quire {
namespace {

void note_numbers(AnswerSink& answers, SeamCall call, RequestId request, const SeamQuestion& question,
                  std::initializer_list<std::uint64_t> values) {
  answers.note(call, request, question, {values.begin(), values.size()}, {});
}

// Records the transfers that a connector adds to a plan: per transfer the request's id, direction, need, group, tier, the number of blocks,
// the blocks, the number of places, and the places.
class NotedTransfers final : public TransferList {
 public:
  void begin(TransferList& inner) {
    inner_ = &inner;
    values.clear();
  }
  std::optional<TransferId> add(const Transfer& transfer) override {
    QUIRE_CHECK(inner_ != nullptr, "transfers are recorded only while a plan is made");
    values.insert(values.end(), {transfer.request.value, static_cast<std::uint64_t>(transfer.direction),
                                 static_cast<std::uint64_t>(transfer.need), transfer.group, transfer.tier, transfer.blocks.size()});
    for (const BlockId block : transfer.blocks) values.push_back(block.value);
    values.push_back(transfer.places.size());
    values.insert(values.end(), transfer.places.begin(), transfer.places.end());
    return inner_->add(transfer);
  }
  std::vector<std::uint64_t> values;

 private:
  TransferList* inner_ = nullptr;
};

class RecordedConnector final : public Connector {
 public:
  RecordedConnector(Connector* inner, AnswerSink& answers) : inner_(inner), answers_(&answers) {}
  void bind(const Core& core) override { inner_->bind(core); }
  [[nodiscard]] bool supports_groups() const override { return inner_->supports_groups(); }
  [[nodiscard]] bool supports_states() const override { return inner_->supports_states(); }
  ExternalMatch match(const RequestView& request, std::uint32_t num_local_tokens) override {
    const SeamQuestion question = SeamQuestion().add(request).add(num_local_tokens);
    const ExternalMatch match = inner_->match(request, num_local_tokens);
    note_numbers(*answers_, SeamCall::connector_match, request.id, question,
                 {match.num_tokens ? 1U : 0U, match.num_tokens.value_or(0), match.load_async ? 1U : 0U});
    return match;
  }
  // Not recorded, because no decision depends on it.
  bool peek(const RequestView& request, std::uint32_t num_local_tokens, std::vector<TierMatch>& matches) override {
    return inner_->peek(request, num_local_tokens, matches);
  }
  void allocated(const RequestView& request, GroupBlocks blocks, std::uint32_t num_external_tokens) override {
    inner_->allocated(request, blocks, num_external_tokens);
  }
  bool finished(const RequestView& request, GroupBlocks blocks) override {
    const SeamQuestion question = SeamQuestion().add(request);
    const bool keeps = inner_->finished(request, blocks);
    note_numbers(*answers_, SeamCall::connector_finished, request.id, question, {keeps ? 1U : 0U});
    return keeps;
  }
  void planned(const StepPlan& plan) override { inner_->planned(plan); }
  void plan_transfers(const StepPlan& plan, TransferList& transfers) override {
    noted_.begin(transfers);
    inner_->plan_transfers(plan, noted_);
    answers_->note(SeamCall::connector_plan_transfers, {}, SeamQuestion().add(plan.step.value), noted_.values, {});
  }
  void completed(const TransferCompletion& completion) override { inner_->completed(completion); }
  void order_failed(std::size_t num_async, std::span<RequestId> finishing, std::span<RequestId> reported) override {
    QUIRE_CHECK(num_async <= finishing.size(), "requests that waited for their load are among the failed requests");
    const SeamQuestion question =
        SeamQuestion().add(num_async).add(std::span<const RequestId>(finishing)).add(std::span<const RequestId>(reported));
    inner_->order_failed(num_async, finishing, reported);
    std::vector<std::uint64_t> values;
    for (const RequestId id : finishing) values.push_back(id.value);
    for (const RequestId id : reported) values.push_back(id.value);
    answers_->note(SeamCall::connector_order_failed, {}, question, values, {});
  }
  void forget_blocks(const RequestView& request) override { inner_->forget_blocks(request); }
  void invalidated(const RequestView& request, std::uint32_t num_valid_tokens) override { inner_->invalidated(request, num_valid_tokens); }
  void sent(RequestId request) override { inner_->sent(request); }
  void step_output() override { inner_->step_output(); }
  bool reset() override {
    const bool done = inner_->reset();
    note_numbers(*answers_, SeamCall::connector_reset, {}, {}, {done ? 1U : 0U});
    return done;
  }

 private:
  Connector* inner_;
  AnswerSink* answers_;
  NotedTransfers noted_;
};

class RecordedEncoderConnector final : public EncoderConnector {
 public:
  RecordedEncoderConnector(EncoderConnector* inner, AnswerSink& answers) : inner_(inner), answers_(&answers) {}
  bool has(std::string_view identifier) override {
    const SeamQuestion question = SeamQuestion().add(identifier);
    const bool has = inner_->has(identifier);
    note_numbers(*answers_, SeamCall::encoder_has, {}, question, {has ? 1U : 0U});
    return has;
  }
  void allocated(const RequestView& request, std::uint32_t index) override { inner_->allocated(request, index); }

 private:
  EncoderConnector* inner_;
  AnswerSink* answers_;
};

class RecordedGrammar final : public Grammar {
 public:
  RecordedGrammar(Grammar* inner, AnswerSink& answers, bool with_tokens) : inner_(inner), answers_(&answers), with_tokens_(with_tokens) {}
  bool ready(RequestId id) override {
    const bool ready = inner_->ready(id);
    note_numbers(*answers_, SeamCall::grammar_ready, id, {}, {ready ? 1U : 0U});
    return ready;
  }
  bool failed(RequestId id) override {
    const bool failed = inner_->failed(id);
    if (failed) note_numbers(*answers_, SeamCall::grammar_failed, id, {}, {1U});
    return failed;
  }
  bool should_advance(const RequestView& request) override {
    const SeamQuestion question = SeamQuestion().add(request);
    const bool should = inner_->should_advance(request);
    note_numbers(*answers_, SeamCall::grammar_should_advance, request.id, question, {should ? 1U : 0U});
    return should;
  }
  bool accept(RequestId id, std::span<const TokenId> tokens) override {
    const bool fits = inner_->accept(id, tokens);
    note_numbers(*answers_, SeamCall::grammar_accept, id, SeamQuestion(with_tokens_).add(tokens), {fits ? 1U : 0U});
    return fits;
  }
  std::uint32_t count_valid(RequestId id, std::span<const TokenId> drafts) override {
    const std::uint32_t count = inner_->count_valid(id, drafts);
    note_numbers(*answers_, SeamCall::grammar_count_valid, id, SeamQuestion(with_tokens_).add(drafts), {count});
    return count;
  }
  bool fork(RequestId parent, RequestId child, std::uint32_t num_outputs) override {
    const bool forked = inner_->fork(parent, child, num_outputs);
    note_numbers(*answers_, SeamCall::grammar_fork, parent, SeamQuestion().add(child.value).add(num_outputs), {forked ? 1U : 0U});
    return forked;
  }

 private:
  Grammar* inner_;
  AnswerSink* answers_;
  bool with_tokens_;
};

class RecordedToolNamer final : public ToolNamer {
 public:
  RecordedToolNamer(ToolNamer* inner, AnswerSink& answers) : inner_(inner), answers_(&answers) {}
  std::string tool_of(const RequestView& request) override {
    const SeamQuestion question = SeamQuestion().add(request);
    std::string tool = inner_->tool_of(request);
    answers_->note(SeamCall::tool_of, request.id, question, {}, tool);
    return tool;
  }

 private:
  ToolNamer* inner_;
  AnswerSink* answers_;
};

class RecordedHash final : public HashFunction {
 public:
  RecordedHash(HashFunction* inner, AnswerSink& answers, const PseudonymKey* leave_out)
      : inner_(inner), answers_(&answers), leave_out_(leave_out) {}
  BlockHash hash(const BlockHash* parent, const HashInput& input) override {
    const BlockHash name = inner_->hash(parent, input);
    const BlockHash noted = leave_out_ != nullptr ? pseudonym(*leave_out_, name) : name;
    SeamQuestion question(leave_out_ == nullptr);
    if (leave_out_ != nullptr && parent != nullptr) {
      const BlockHash noted_parent = pseudonym(*leave_out_, *parent);
      question.add(&noted_parent, input);
    } else {
      question.add(parent, input);
    }
    answers_->note(SeamCall::hash, {}, question, {}, {reinterpret_cast<const char*>(noted.bytes.data()), noted.bytes.size()});
    return name;
  }

 private:
  HashFunction* inner_;
  AnswerSink* answers_;
  const PseudonymKey* leave_out_;
};

}  // namespace

struct RecordedSeams::Impl {
  Impl(const CoreSeams& from, AnswerSink& answers, const PseudonymKey* leave_out)
      : given(from),
        with_tokens(leave_out == nullptr),
        connector(given.connector, answers),
        encoder_connector(given.encoder_connector, answers),
        grammar(given.grammar, answers, with_tokens),
        tools(given.tools, answers),
        hash(given.hash, answers, leave_out) {}

  const CoreSeams given;
  const bool with_tokens;
  RecordedConnector connector;
  RecordedEncoderConnector encoder_connector;
  RecordedGrammar grammar;
  RecordedToolNamer tools;
  RecordedHash hash;
};

RecordedSeams::RecordedSeams(const CoreSeams& given, AnswerSink& answers, const PseudonymKey* leave_out)
    : impl_(std::make_unique<Impl>(given, answers, leave_out)) {}
RecordedSeams::~RecordedSeams() = default;

CoreSeams RecordedSeams::seams() const {
  CoreSeams seams = impl_->given;
  if (seams.connector != nullptr) seams.connector = &impl_->connector;
  if (seams.encoder_connector != nullptr) seams.encoder_connector = &impl_->encoder_connector;
  if (seams.grammar != nullptr) seams.grammar = &impl_->grammar;
  if (seams.tools != nullptr) seams.tools = &impl_->tools;
  if (seams.hash != nullptr) seams.hash = &impl_->hash;
  return seams;
}

SeamRecord RecordedSeams::which() const {
  const CoreSeams& given = impl_->given;
  return {.has_connector = given.connector != nullptr,
          .has_encoder_connector = given.encoder_connector != nullptr,
          .has_grammar = given.grammar != nullptr,
          .has_tools = given.tools != nullptr,
          .has_hash = given.hash != nullptr,
          .omits_tokens = !impl_->with_tokens,
          .answers = {}};
}

}  // namespace quire
