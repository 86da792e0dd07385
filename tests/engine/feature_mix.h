#pragma once
// Combines features of engines and requests: makes the engine options and the requests of a feature set. A request must get the same answer
// as when it runs alone on a plain engine.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/random.h"
#include "engine/collector.h"
#include "engine/create.h"
#include "engine/seeing_model.h"
#include "engine/windowed_model.h"
#include "runtime/model/rig.h"
#include "runtime/model/tiny_adapter.h"
#include "runtime/model/weights/model_file.h"
#include "text/vocabulary.h"

namespace quire::test {

// The first kFirstOfRequests features belong to the engine, the others to the request.
enum class Feature : std::uint8_t {
  dram,
  disk,
  swap,
  windows,
  states,
  drafts,
  draft_model,
  int8,
  kv_int8,
  async,
  chunks,
  priorities,
  continuum,
  n,
  beams,
  session,
  grammar,
  tools,
  prompt_logprobs,
  pooling,
  hidden,
  tenant,
  fork,
  adapter,
  pictures
};
inline constexpr std::size_t kNumFeatures = 25, kFirstOfRequests = 13;

struct FeatureText {
  const char* name;
  const char* how;
};
inline constexpr FeatureText kFeatureTexts[kNumFeatures] = {{"memory tier", "`--kv-dram`"},
                                                            {"disk tier", "`--kv-disk`"},
                                                            {"swap", "`--kv-swap`"},
                                                            {"sliding windows", "a model with sliding windows"},
                                                            {"states", "a hybrid model ([hybrids.md](hybrids.md))"},
                                                            {"draft tokens", "`--num-speculative-tokens` without a draft model (n-gram)"},
                                                            {"draft model", "`--speculative-model`"},
                                                            {"int8 activations", "`--activations int8`"},
                                                            {"int8 KV cache", "`--kv-cache-dtype int8`"},
                                                            {"asynchronous scheduling", "`--async-scheduling`"},
                                                            {"chunked prefill", "`--long-prefill-token-threshold`"},
                                                            {"priorities", "`--scheduling-policy priority`, `priority`"},
                                                            {"scheduling by job", "`--scheduling-policy continuum`"},
                                                            {"several choices", "`n`, `best_of`"},
                                                            {"beam search", "`use_beam_search`"},
                                                            {"session", "`session`"},
                                                            {"structured output", "`response_format`, `structured_outputs`"},
                                                            {"tool calls", "`tools`: a grammar constrains the calls"},
                                                            {"prompt log probabilities", "`prompt_logprobs`, `echo` with `logprobs`"},
                                                            {"pooling", "`/v1/embeddings` with mean pooling"},
                                                            {"hidden states", "`/pooling` with `task` `token_embed`"},
                                                            {"cache salt", "`cache_salt`, `--tenant-secret`"},
                                                            {"fork", "`POST /v1/requests/{id}/fork`"},
                                                            {"LoRA adapter", "`--enable-lora`, `model`"},
                                                            {"images", "`image_url` in a model that supports images"}};

class FeatureSet {
 public:
  FeatureSet() = default;
  FeatureSet(std::initializer_list<Feature> features) {
    for (const Feature feature : features) add(feature);
  }
  void add(Feature feature) { bits_ |= 1U << static_cast<std::uint32_t>(feature); }
  [[nodiscard]] bool has(Feature feature) const { return (bits_ >> static_cast<std::uint32_t>(feature) & 1U) != 0; }
  [[nodiscard]] FeatureSet of_engine() const { return FeatureSet(bits_ & kEngineBits); }
  [[nodiscard]] FeatureSet of_request() const { return FeatureSet(bits_ & ~kEngineBits); }
  // The features that change the bits of answers.
  [[nodiscard]] FeatureSet of_numbers() const {
    constexpr std::uint32_t kBits = 1U << static_cast<std::uint32_t>(Feature::int8) | 1U << static_cast<std::uint32_t>(Feature::kv_int8);
    return FeatureSet(bits_ & kBits);
  }
  [[nodiscard]] bool empty() const { return bits_ == 0; }
  [[nodiscard]] std::string name() const {
    std::string text;
    for (std::size_t i = 0; i < kNumFeatures; ++i)
      if (has(static_cast<Feature>(i))) text += (text.empty() ? "" : " + ") + std::string(kFeatureTexts[i].name);
    return text.empty() ? "plain" : text;
  }
  friend auto operator<=>(const FeatureSet&, const FeatureSet&) = default;

 private:
  static constexpr std::uint32_t kEngineBits = (1U << kFirstOfRequests) - 1;
  explicit FeatureSet(std::uint32_t bits) : bits_(bits) {}
  std::uint32_t bits_ = 0;
};

// The vocabulary has one token per byte, and one token that ends an answer.
inline constexpr int kEndToken = 256;

inline std::string write_letters(const std::string& path) {
  boost::json::object vocab;
  for (unsigned byte = 0; byte < 256; ++byte) vocab[to_byte_alphabet(std::string(1, static_cast<char>(byte)))] = byte;
  const boost::json::value tokenizer{{"added_tokens", boost::json::array{{{"id", kEndToken}, {"content", "<|end|>"}, {"special", true}}}},
                                     {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
                                     {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", boost::json::array{}}}}};
  tiny::write_file(path + "/tokenizer.json", boost::json::serialize(tokenizer));
  return path;
}

inline std::string write_windowed_model(const std::string& path) {
  tiny::write_windowed_weights(path, kEndToken);
  return write_letters(path);
}

// The convolved model keeps states of all blocks, because they are no larger than keys and values. The scanned model keeps states of some.
inline std::string write_convolved_model(const std::string& path) {
  tiny::write_lfm2_weights(path, kEndToken);
  return write_letters(path);
}

inline std::string write_scanned_model(const std::string& path) {
  tiny::write_mamba_weights(path, "granitemoehybrid", kEndToken);
  return write_letters(path);
}

// Writes the model into a subfolder of `folder` with the model's name.
inline std::string write_seeing_model(const std::string& folder, const SeeingModel& model) {
  const std::string path = folder + "/" + std::string(model.name);
  model.write(path);
  return write_letters(path);
}

// Writes two adapters for a model into folders that last as long as the program. Each adapter changes the answers.
inline AdapterOptions adapters_for(const std::string& model) {
  static const tiny::TempFolder folder;
  static std::map<std::string, std::vector<AdapterModule>> known;
  std::vector<AdapterModule>& modules = known[model];
  for (const char* name : {"one", "two"}) {
    if (modules.size() == 2) break;
    const std::string path = folder.file(std::string(name) + std::to_string(known.size()));
    const auto file = ModelFile::open(model);
    EXPECT_TRUE(file.has_value()) << file.error().to_string();
    tiny::write_adapter(path, tiny::adapter_config(8, 4), tiny::adapter_of(file->config(), 8, name).all);
    modules.push_back({name, path});
  }
  return {.max_loras = 2, .max_lora_rank = 8, .max_cpu_loras = 2, .modules = modules};
}

// Returns the draft model for a model: itself for the real one, another small model with the same tokens for the small ones.
inline std::string draft_for(const std::string& model) {
  static const tiny::TempFolder folder;
  static const std::string small = write_windowed_model(folder.file("draft"));
  return model.ends_with(".gguf") ? model : small;
}

struct Made {
  EngineOptions options;
  EngineSeams seams;
};

inline void set_numbers(FeatureSet set, EngineOptions& options) {
  if (set.has(Feature::int8)) options.activations = ActivationMode::int8;
  if (set.has(Feature::kv_int8)) options.cache.dtype = KvDtype::int8;
}

// Gives so few blocks that concurrent requests are preempted and tiers are needed.
inline Made make_options(FeatureSet set, const std::string& model, const std::string& folder) {
  Made made;
  EngineOptions& options = made.options;
  options.model = model;
  options.num_threads = 2;
  options.adapters = adapters_for(model);
  options.cache.block_size = 4;
  options.cache.num_blocks = set.has(Feature::windows) ? 100 : 34;
  if (model.ends_with(kGemmaModel.name)) options.cache.num_blocks = 70;
  if (set.has(Feature::states)) options.cache.num_blocks = model.ends_with("convolved") ? 110 : 40;
  options.scheduler.max_model_len = 128;
  options.scheduler.max_num_seqs = 8;
  options.scheduler.async_scheduling = set.has(Feature::async);
  if (set.has(Feature::chunks)) options.scheduler.long_prefill_token_threshold = 8;
  if (set.has(Feature::priorities)) options.scheduler.policy = SchedulingPolicy::priority;
  if (set.has(Feature::continuum)) options.scheduler.policy = SchedulingPolicy::continuum;
  set_numbers(set, options);
  if (set.has(Feature::draft_model)) {
    options.draft_model = draft_for(model);
    options.speculation = {.num_speculative_tokens = 3};
  }
  if (set.has(Feature::drafts)) options.speculation = {.num_speculative_tokens = 3, .prompt_lookup_min = 1, .prompt_lookup_max = 3};
  if (set.has(Feature::swap)) options.kv_swap = {.bytes = std::uint64_t{16} << 20U, .choice = SwapChoice::always};
  if (set.has(Feature::dram)) made.seams.kv_dram = {.bytes = std::uint64_t{16} << 20U, .policy = KvTierPolicy::exact};
  if (set.has(Feature::disk))
    made.seams.kv_disk = {.folder = folder, .budget_bytes = std::uint64_t{64} << 20U, .policy = KvTierPolicy::exact};
  return made;
}

inline EngineOptions plain_options(FeatureSet set, const std::string& model) {
  EngineOptions options = make_options({}, model, {}).options;
  set_numbers(set, options);
  options.cache.num_blocks = 400;
  options.cache.enable_prefix_caching = false;
  return options;
}

// Makes a request with these features. `text` selects the prompt: some prompts share a prefix. Images come from `seeing`.
inline EngineRequest make_mixed(FeatureSet set, std::uint32_t text, std::optional<TokenId> tool_mark,
                                const SeeingModel& seeing = kSmolVlm) {
  EngineRequest request;
  Random random(text);
  for (TokenId i = 0; i < static_cast<TokenId>(9 + text * 7 % 23); ++i)
    request.prompt.push_back(60 + (i * 7 + static_cast<TokenId>(text % 2)) % 40);
  // There are three images, so that some prompts show the same image after the same words.
  if (set.has(Feature::pictures)) seeing.show(request, "picture " + std::to_string(text % 3), 1 + text % 3);
  if (set.has(Feature::pictures) && text % 4 == 1) seeing.show(request, "picture 7", 2);
  for (std::uint64_t i = random.between(1, 9); i > 0; --i) request.prompt.push_back(static_cast<TokenId>(random.between(40, 120)));
  SamplingParams& sampling = request.sampling;
  sampling.temperature = set.has(Feature::n) && !set.has(Feature::beams) && !set.has(Feature::fork) ? 1.0F : 0.0F;
  sampling.seed = 5;
  sampling.max_tokens = set.has(Feature::beams) ? 6 : 9;
  sampling.ignore_eos = !set.has(Feature::grammar) && !set.has(Feature::tools);
  if (set.has(Feature::n) || set.has(Feature::beams)) request.n = 3;
  if (set.has(Feature::beams)) request.beam_search.emplace();
  request.session = set.has(Feature::session);
  if (set.has(Feature::grammar)) request.structured_output = {.kind = StructuredOutput::Kind::regex, .text = "[a-m]{3,30}( [n-z]+)+"};
  if (set.has(Feature::tools))
    request.structured_output = {.kind = StructuredOutput::Kind::regex, .text = "[a-f0-9]{4,20}", .begin_after = {tool_mark.value_or(0)}};
  if (set.has(Feature::prompt_logprobs)) sampling.prompt_logprobs = 3;
  request.pooling = set.has(Feature::pooling) || set.has(Feature::hidden);
  if (set.has(Feature::pooling)) sampling.pooling.kind = PoolingKind::mean;
  if (set.has(Feature::hidden)) sampling.pooling.kind = PoolingKind::all;
  if (!request.pooling) sampling.logprobs = 2;
  if (request.pooling) sampling.max_tokens = 1;
  if (set.has(Feature::tenant)) request.cache_salt = "somebody";
  if (set.has(Feature::adapter)) request.adapter = text % 3 == 0 ? "one" : "two";
  return request;
}

using Bits = std::vector<std::uint32_t>;

// Returns tokens and the available log probabilities: a child has none for the tokens it began with.
inline Bits bits_of(const Collector::Answer& answer, std::size_t first_logprobs = 0) {
  Bits bits;
  for (const TokenId token : answer.tokens) bits.push_back(static_cast<std::uint32_t>(token));
  const auto add = [&bits](const std::vector<PositionLogprobs>& positions, std::size_t first) {
    for (std::size_t i = std::min(first, positions.size()); i < positions.size(); ++i)
      for (const TokenLogprob& entry : positions[i].entries)
        bits.insert(bits.end(), {static_cast<std::uint32_t>(entry.token), std::bit_cast<std::uint32_t>(entry.logprob), entry.rank});
  };
  add(answer.logprobs, first_logprobs);
  if (answer.prompt_logprobs != nullptr) add(*answer.prompt_logprobs, 0);
  for (const float number : answer.pooled) bits.push_back(std::bit_cast<std::uint32_t>(number));
  if (!answer.error.empty()) bits.push_back(UINT32_MAX);
  return bits;
}

// Returns the next input of a session with this text.
inline std::vector<TokenId> next_input(std::uint32_t text) {
  return {70, 71, static_cast<TokenId>(60 + text % 30), 90};
}

// Remembers what requests get alone, one by one, on an engine with only the bit-changing features of `engine`.
class Alone {
 public:
  Alone(const std::string& model, FeatureSet engine) : seeing_(seeing_model_of(model)) {
    auto created = create_engine(plain_options(engine, model), nullptr, nullptr);
    EXPECT_TRUE(created.has_value()) << created.error().to_string();
    engine_ = std::move(*created);
  }
  // Returns whether the engine accepts a request with this set, and forks it if the set has forks.
  bool takes(FeatureSet set) {
    const auto [known, is_new] = taken_.try_emplace(set, false);
    if (!is_new) return known->second;
    const bool is_forked = set.has(Feature::fork);
    if (is_forked && (set.has(Feature::beams) || set.has(Feature::pooling) || set.has(Feature::hidden))) return false;
    const EngineRequest request = make(set, 0, 0);
    const auto id = engine_->submit(request, sink_);
    known->second = id.has_value();
    for (std::uint32_t i = 0; id && i < request.n; ++i) engine_->finish({id->value + i}, FinishReason::abort);
    return known->second;
  }
  [[nodiscard]] Engine& engine() { return *engine_; }
  // Makes the request for this model, with images of this model.
  [[nodiscard]] EngineRequest make(FeatureSet set, std::uint32_t text, std::optional<TokenId> tool_mark) const {
    return make_mixed(set, text, tool_mark, seeing_ != nullptr ? *seeing_ : kSmolVlm);
  }
  // Returns the token with which this prompt's answer begins: tools are called after it.
  TokenId tool_mark(FeatureSet set, std::uint32_t text) {
    const FeatureSet plain = set.has(Feature::pictures) ? FeatureSet{Feature::pictures} : FeatureSet{};
    return answers(plain, text).at(0).tokens.at(0);
  }

  // Returns each of the request's answers. A child gets the first one, except for the log probabilities.
  std::vector<Collector::Answer> answers(FeatureSet set, std::uint32_t text) {
    set = set.of_request();
    const std::pair key(set, text);
    if (const auto found = known_.find(key); found != known_.end()) return found->second;
    const std::optional<TokenId> mark = set.has(Feature::tools) ? std::optional(tool_mark(set, text)) : std::nullopt;
    EngineRequest request = make(set, text, mark);
    std::vector<Collector::Answer> all;
    if (request.beam_search) {
      const RequestId first = engine_->submit(request, sink_).value();
      for (std::uint32_t i = 0; i < request.n; ++i) all.push_back(sink_.wait({first.value + i}));
    } else if (request.session) {
      all.push_back(session(request, text));
    } else {
      const std::uint32_t n = std::exchange(request.n, 1);
      for (std::uint32_t i = 0; i < n; ++i, ++*request.sampling.seed) all.push_back(sink_.wait(engine_->submit(request, sink_).value()));
    }
    return known_[key] = all;
  }

  // Returns the answer to any request; for a session, also with its next input.
  Collector::Answer answer_to(const EngineRequest& request, std::uint32_t text) {
    return request.session ? session(request, text) : answer(request);
  }

 private:
  Collector::Answer answer(EngineRequest request) { return sink_.wait(engine_->submit(std::move(request), sink_).value()); }
  // Runs each part of a session as a request whose prompt is everything before it.
  Collector::Answer session(EngineRequest request, std::uint32_t text) {
    request.session = false;
    Collector::Answer all = answer(request);
    request.prompt.insert(request.prompt.end(), all.tokens.begin(), all.tokens.end());
    const std::vector<TokenId> input = next_input(text);
    request.prompt.insert(request.prompt.end(), input.begin(), input.end());
    const Collector::Answer more = answer(request);
    all.tokens.insert(all.tokens.end(), more.tokens.begin(), more.tokens.end());
    all.logprobs.insert(all.logprobs.end(), more.logprobs.begin(), more.logprobs.end());
    return all;
  }

  const SeeingModel* seeing_;
  std::unique_ptr<Engine> engine_;
  Collector sink_;
  std::map<std::pair<FeatureSet, std::uint32_t>, std::vector<Collector::Answer>> known_;
  std::map<FeatureSet, bool> taken_;
};

}  // namespace quire::test
