#pragma once
// An engine that the test drives by hand, or that answers every request immediately with the same text. Tokens are bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quire/engine.h"
#include "quire/watch.h"

namespace quire {

inline constexpr TokenId kFakeEos = 256;
inline constexpr std::uint32_t kFakeVocab = 257;

// GPT-2's byte-level alphabet: printable bytes stand for themselves, other bytes for characters from U+0100 on.
inline std::string byte_piece(unsigned byte) {
  const auto printable = [](unsigned b) { return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174; };
  unsigned code = byte;
  if (!printable(byte)) {
    code = 256;
    for (unsigned b = 0; b < byte; ++b) code += printable(b) ? 0 : 1;
  }
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
}

inline ModelInfo byte_model() {
  ModelInfo info;
  info.name = "bytes";
  info.vocab_size = kFakeVocab;
  info.context_length = 512;
  info.hidden_size = 4;
  TokenizerSpec spec;
  spec.algorithm = TokenizerSpec::Algorithm::bpe_bytes;
  spec.pre = "gpt-2";
  for (unsigned byte = 0; byte < 256; ++byte) spec.tokens.push_back(byte_piece(byte));
  spec.tokens.emplace_back("<|end|>");
  spec.types.assign(256, TokenizerSpec::TokenType::normal);
  spec.types.push_back(TokenizerSpec::TokenType::control);
  spec.eos = kFakeEos;
  spec.eog = {kFakeEos};
  spec.chat_template =
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
      "{% if tools %}[tools: {{ tools | length }}]{% endif %}{% if shout %}!{% endif %}{% if add_generation_prompt %}<assistant>{% endif "
      "%}";
  info.tokenizer = std::make_shared<const TokenizerSpec>(std::move(spec));
  return info;
}

inline std::vector<TokenId> bytes_to_tokens(std::string_view text) {
  std::vector<TokenId> tokens;
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

inline std::string tokens_to_bytes(const std::vector<TokenId>& tokens) {
  std::string text;
  for (const TokenId token : tokens) text += static_cast<char>(token);
  return text;
}

inline RequestOutput output_of(RequestId id, std::vector<TokenId> tokens) {
  RequestOutput output;
  output.id = id;
  output.tokens = std::move(tokens);
  return output;
}

inline RequestOutput last_output_of(RequestId id, std::vector<TokenId> tokens, FinishReason reason) {
  RequestOutput output = output_of(id, std::move(tokens));
  output.finished = true;
  output.reason = reason;
  return output;
}

class FakeEngine final : public Engine {
 public:
  struct Submitted {
    RequestId id;
    EngineRequest request;
    OutputSink* sink = nullptr;
    std::optional<FinishReason> finished;  // set by the caller's abort
    std::vector<std::vector<TokenId>> inputs{};
  };

  FakeEngine() {
    options_.scheduler.max_model_len = 512;
    stats_.num_blocks = 10;
    stats_.num_free_blocks = 10;
  }

  // After this call every request is answered immediately, byte by byte, and ends with EOS or at its max_tokens.
  void answer_with(std::string text) { answer_ = std::move(text); }
  // After this call every pooling request is answered immediately.
  using Pool = std::function<std::vector<float>(const EngineRequest&)>;
  void pool_with(Pool pool) { pool_ = std::move(pool); }
  // After this call every other request is answered immediately with these tokens, and ends.
  using Speak = std::function<std::vector<TokenId>(const EngineRequest&)>;
  void speak_with(Speak speak) { speak_ = std::move(speak); }
  void end_pooled(RequestId id, std::vector<float> pooled) {
    RequestOutput output = last_output_of(id, {}, FinishReason::stop);
    output.pooled = std::move(pooled);
    deliver(std::move(output));
  }
  // Call before the server starts: the model supports images, and "<image>" is a special token with the id after kFakeEos.
  void see(ImageInfo pictures, const std::string& mark = "<image>") {
    TokenizerSpec spec = *info_.tokenizer;
    spec.tokens.push_back(mark);
    spec.types.push_back(TokenizerSpec::TokenType::control);
    info_.tokenizer = std::make_shared<const TokenizerSpec>(std::move(spec));
    pictures.token = static_cast<TokenId>(info_.vocab_size++);
    info_.pictures = std::move(pictures);
  }
  // Call before the server starts.
  void set_model(ModelInfo info) { info_ = std::move(info); }
  void set_pooling(PoolingInfo pooling) { info_.pooling = std::move(pooling); }
  void set_experts(std::uint32_t num_layers, std::uint32_t per_token, std::uint32_t num_experts) {
    info_.num_layers = num_layers;
    info_.experts_per_token = per_token;
    info_.num_experts = num_experts;
  }
  // Later requests are refused.
  void refuse_with(std::optional<Error> error, std::size_t after = 0) {
    refusal_ = std::move(error);
    refuse_after_ = after;
  }

  // Call before the server starts: every submission throws.
  void throw_at_submit(std::string what) { exception_ = std::move(what); }

  Result<RequestId> submit(EngineRequest request, OutputSink& sink) override {
    if (!exception_.empty()) throw std::runtime_error(exception_);
    const std::lock_guard lock(mutex_);
    if (refusal_ && submitted_.size() >= refuse_after_) return std::unexpected(*refusal_);
    const RequestId id{submitted_.size()};
    const std::uint32_t n = std::exchange(request.n, 1);
    for (std::uint32_t i = 0; i < n; ++i) {
      submitted_.push_back({RequestId{submitted_.size()}, request, &sink, {}});
      if (i > 0 && request.sampling.seed) *submitted_.back().request.sampling.seed += i;
      if (answer_ && !(pool_ && request.pooling)) play_answer(submitted_.back());
      if (speak_ && !request.pooling) {
        std::vector<RequestOutput> outputs = {last_output_of(submitted_.back().id, speak_(request), FinishReason::stop)};
        sink.deliver(std::move(outputs));
      }
      if (pool_ && request.pooling) {
        std::vector<RequestOutput> outputs = {last_output_of(submitted_.back().id, {}, FinishReason::stop)};
        outputs[0].pooled = pool_(request);
        sink.deliver(std::move(outputs));
      }
    }
    changed_.notify_all();
    return id;
  }

  // Answers immediately and stores the name.
  void explain(std::string name, ExplainCallback answer) override {
    asked_name = name;
    answer(explanations);
  }
  // Answers immediately and stores the request.
  void probe(EngineRequest request, ProbeCallback answer) override {
    const std::lock_guard lock(mutex_);
    probed_.push_back(std::move(request));
    answer(found_);
  }
  void find(Result<EngineProbe> found) {
    const std::lock_guard lock(mutex_);
    found_ = std::move(found);
  }
  std::vector<EngineRequest> probed() {
    const std::lock_guard lock(mutex_);
    return probed_;
  }
  // Answers immediately with the test's value.
  void save_journal(JournalSaveCallback answer) override { answer(saved_journal); }
  Result<SavedJournal> saved_journal = SavedJournal{};
  std::vector<RequestExplanation> explanations;
  void cache_curve(std::optional<std::string> tenant, CurveCallback answer) override {
    curve_of = std::move(tenant);
    answer(curve);
  }
  std::optional<std::string> curve_of;
  Result<EngineHitRateCurve> curve = fail(ErrorCode::unsupported, "curve_blocks", "is 0", "give more");
  std::string asked_name;

  // Answers immediately with a copy of `watched` and counts the call. While `answers_looks` is false, the test answers.
  void watch(std::shared_ptr<WatchFrame> frame, WatchCallback answer) override {
    const std::lock_guard lock(mutex_);
    ++num_looks;
    *frame = watched;
    if (answers_looks)
      answer(std::move(frame));
    else
      looks.emplace_back(std::move(frame), std::move(answer));
  }
  WatchFrame watched;
  bool answers_looks = true;
  int num_looks = 0;
  std::vector<std::pair<std::shared_ptr<WatchFrame>, WatchCallback>> looks;
  void set_explained_requests(std::uint32_t num) { options_.explained_requests = num; }
  EngineStats& told_stats() { return stats_; }

  // Adds an adapter that is served, with its weights in memory. Call before the server starts.
  void add_adapter(AdapterInfo adapter) { adapters_.push_back(std::move(adapter)); }
  // Returns the calls that read files, by verb and name; they return the test's error.
  std::vector<std::string> adapter_calls() {
    const std::lock_guard lock(mutex_);
    return adapter_calls_;
  }
  void fail_to_read(std::optional<Error> error) {
    const std::lock_guard lock(mutex_);
    read_error_ = std::move(error);
  }
  Result<AdapterInfo> load_adapter(const std::string& name, const std::string& path, bool replace) override {
    const std::lock_guard lock(mutex_);
    adapter_calls_.push_back((replace ? "replace " : "load ") + name + " " + path);
    if (read_error_) return std::unexpected(*read_error_);
    const auto found = find_adapter(name);
    if (!replace && found != adapters_.end()) return fail(ErrorCode::invalid_argument, "lora_name", "is already loaded");
    const AdapterInfo adapter{.name = name, .path = path, .digest = "00", .is_resident = true};
    if (found != adapters_.end())
      *found = adapter;
    else
      adapters_.push_back(adapter);
    return adapter;
  }
  Result<void> unload_adapter(const std::string& name) override {
    const std::lock_guard lock(mutex_);
    adapter_calls_.push_back("unload " + name);
    const auto found = find_adapter(name);
    if (found == adapters_.end()) return fail(ErrorCode::not_found, "adapter", "there is no adapter " + name);
    adapters_.erase(found);
    return {};
  }
  [[nodiscard]] std::vector<AdapterInfo> adapters() const override {
    const std::lock_guard lock(mutex_);
    return adapters_;
  }
  // Returns a lease that no test inspects.
  Result<std::shared_ptr<const AdapterLease>> lease_adapter(const std::string& name, bool may_read) override {
    const std::lock_guard lock(mutex_);
    const auto found = find_adapter(name);
    if (found == adapters_.end()) return fail(ErrorCode::not_found, "adapter", "there is no adapter " + name);
    if (!found->is_resident && !may_read) return nullptr;
    if (may_read) adapter_calls_.push_back("read " + name);
    if (may_read && read_error_) return std::unexpected(*read_error_);
    found->is_resident = true;
    return std::shared_ptr<const AdapterLease>(lease_, static_cast<const AdapterLease*>(static_cast<const void*>(lease_.get())));
  }

  // Records the fork like a submission, with the parent's prompt; the test generates its output.
  Result<RequestId> fork(RequestId parent, const EngineFork& fork, OutputSink& sink) override {
    EngineRequest request = at(parent.value).request;
    request.n = fork.n;
    request.sampling.seed = fork.seed;
    request.sampling.max_tokens = fork.max_tokens.value_or(request.sampling.max_tokens);
    return submit(std::move(request), sink);
  }

  // Records the input; the test generates the answer.
  Result<void> append(RequestId session, std::vector<TokenId> tokens) override {
    const std::lock_guard lock(mutex_);
    submitted_[session.value].inputs.push_back(std::move(tokens));
    changed_.notify_all();
    return {};
  }
  bool wait_appended(std::size_t index, std::size_t count) {
    return wait([&] { return submitted_.size() > index && submitted_[index].inputs.size() >= count; });
  }

  void finish(RequestId id, FinishReason reason) override {
    const std::lock_guard lock(mutex_);
    submitted_[id.value].finished = reason;
    changed_.notify_all();
  }

  // Control verbs are recorded and the test answers them.
  struct Control {
    std::string verb;
    PauseOptions pause;
    CacheResetOptions reset;
    ControlCallback answer;
  };
  void reset_prefix_cache(const CacheResetOptions& options, ControlCallback answer) override {
    add_control({"reset_prefix_cache", {}, options, std::move(answer)});
  }
  void reset_encoder_cache(ControlCallback answer) override { add_control({"reset_encoder_cache", {}, {}, std::move(answer)}); }
  void pause(const PauseOptions& options, ControlCallback answer) override { add_control({"pause", options, {}, std::move(answer)}); }
  void resume(ControlCallback answer) override { add_control({"resume", {}, {}, std::move(answer)}); }
  // Waits for the next verb.
  Control take_control() {
    EXPECT_TRUE(wait([&] { return !controls_.empty(); }));
    const std::lock_guard lock(mutex_);
    Control control = std::move(controls_.front());
    controls_.erase(controls_.begin());
    return control;
  }
  // Call before the server starts.
  void set_chat_template(std::string text) {
    TokenizerSpec spec = *info_.tokenizer;
    spec.chat_template = std::move(text);
    info_.tokenizer = std::make_shared<const TokenizerSpec>(std::move(spec));
  }
  // Call before the server starts. Answers are still bytes.
  void set_tokenizer(TokenizerSpec spec) {
    info_.vocab_size = static_cast<std::uint32_t>(spec.tokens.size());
    info_.tokenizer = std::make_shared<const TokenizerSpec>(std::move(spec));
  }
  // Adds a token to the vocabulary and returns its id.
  TokenId add_control_token(std::string text) {
    TokenizerSpec spec = *info_.tokenizer;
    spec.tokens.push_back(std::move(text));
    spec.types.push_back(TokenizerSpec::TokenType::control);
    info_.tokenizer = std::make_shared<const TokenizerSpec>(std::move(spec));
    return static_cast<TokenId>(info_.vocab_size++);
  }
  void set_max_model_len(std::uint32_t num_tokens) { options_.scheduler.max_model_len = num_tokens; }
  void set_paused(bool paused) { stats_.is_paused = paused; }

  [[nodiscard]] EngineStats stats() const override { return stats_; }
  [[nodiscard]] const ModelInfo& model() const override { return info_; }
  [[nodiscard]] const EngineOptions& options() const override { return options_; }
  std::uint32_t stop(double /*timeout_s*/) override {
    stats_.is_stopping = true;
    return 0;
  }

  // Delivers the output of one step, as the engine thread does.
  void emit(RequestId id, std::string_view text) { deliver(output_of(id, bytes_to_tokens(text))); }
  // Fails the request as if its grammar cannot be compiled.
  void refuse(RequestId id, Error refusal) {
    RequestOutput output = last_output_of(id, {}, FinishReason::error);
    output.error = refusal.to_string();
    output.refusal = std::move(refusal);
    deliver(std::move(output));
  }
  void end(RequestId id, FinishReason reason, std::string error = {}) {
    RequestOutput output = last_output_of(id, {}, reason);
    output.error = std::move(error);
    if (reason == FinishReason::stop) {
      output.tokens = {kFakeEos};
      output.stop_token = kFakeEos;
    }
    deliver(std::move(output));
  }
  void deliver(RequestOutput output) {
    OutputSink* sink = at(output.id.value).sink;
    std::vector<RequestOutput> outputs;
    outputs.push_back(std::move(output));
    sink->deliver(std::move(outputs));
  }

  // Ends the answer of a session, which continues.
  void end_input(RequestId id, std::string_view text, FinishReason reason) {
    RequestOutput output = output_of(id, bytes_to_tokens(text));
    output.input_ended = true;
    output.reason = reason;
    if (reason == FinishReason::stop) {
      output.tokens.push_back(kFakeEos);
      output.stop_token = kFakeEos;
    }
    deliver(std::move(output));
  }

  [[nodiscard]] Submitted at(std::size_t index) const {
    const std::lock_guard lock(mutex_);
    return submitted_.at(index);
  }
  [[nodiscard]] std::size_t num_submitted() const {
    const std::lock_guard lock(mutex_);
    return submitted_.size();
  }

  // Returns false after ten seconds.
  bool wait_submitted(std::size_t count) {
    return wait([&] { return submitted_.size() >= count; });
  }
  bool wait_finished(std::size_t index) {
    return wait([&] { return submitted_.size() > index && submitted_[index].finished.has_value(); });
  }

 private:
  Result<EngineProbe> found_ = EngineProbe{};
  std::vector<EngineRequest> probed_;

  void add_control(Control control) {
    const std::lock_guard lock(mutex_);
    controls_.push_back(std::move(control));
    changed_.notify_all();
  }

  template <class Condition>
  bool wait(const Condition& condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), condition);
  }

  static std::shared_ptr<const std::vector<PositionLogprobs>> prompt_logprobs_of(const EngineRequest& request) {
    std::vector<PositionLogprobs> positions;
    for (std::size_t i = 1; i < request.prompt.size(); ++i)
      positions.push_back(logprobs_of(request.prompt[i], *request.sampling.prompt_logprobs));
    return std::make_shared<const std::vector<PositionLogprobs>>(std::move(positions));
  }

  // The token is the likeliest; the following ids are next.
  static PositionLogprobs logprobs_of(TokenId token, std::uint32_t count) {
    PositionLogprobs position;
    for (std::uint32_t i = 0; i <= count; ++i)
      position.entries.push_back({(token + static_cast<TokenId>(i)) % 256, -0.5F - static_cast<float>(i), i + 1});
    return position;
  }

  void play_answer(const Submitted& entry) const {
    const SamplingParams& sampling = entry.request.sampling;
    std::vector<TokenId> tokens = bytes_to_tokens(*answer_);
    tokens.push_back(kFakeEos);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      RequestOutput output = output_of(entry.id, {tokens[i]});
      if (sampling.logprobs) output.logprobs = {logprobs_of(tokens[i], *sampling.logprobs)};
      if (sampling.prompt_logprobs && i == 0) output.prompt_logprobs = prompt_logprobs_of(entry.request);
      const bool eos = tokens[i] == kFakeEos;
      output.finished = eos || i + 1 >= sampling.max_tokens;
      output.reason = eos ? FinishReason::stop : FinishReason::length;
      if (eos) output.stop_token = kFakeEos;
      output.num_cached_tokens = 16;
      const bool last = output.finished;
      std::vector<RequestOutput> outputs;
      outputs.push_back(std::move(output));
      entry.sink->deliver(std::move(outputs));
      if (last) return;
    }
  }

  std::vector<AdapterInfo>::iterator find_adapter(const std::string& name) {
    return std::ranges::find(adapters_, name, &AdapterInfo::name);
  }

  std::vector<AdapterInfo> adapters_;
  std::vector<std::string> adapter_calls_;
  std::optional<Error> read_error_;
  std::shared_ptr<const int> lease_ = std::make_shared<const int>(0);
  ModelInfo info_ = byte_model();
  EngineOptions options_;
  EngineStats stats_;
  std::optional<std::string> answer_;
  Speak speak_;
  Pool pool_;
  std::optional<Error> refusal_;
  std::string exception_;
  std::size_t refuse_after_ = 0;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Submitted> submitted_;
  std::vector<Control> controls_;
};

}  // namespace quire
