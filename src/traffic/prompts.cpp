// The content of a word depends only on the seed, the position and the id that the workload gives this part of the prompt. Two prompts
// thus share exactly the beginning in which their ids are equal.
#include "traffic/prompts.h"

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <cmath>
#include <utility>

#include "base/random.h"

namespace quire {
namespace {

namespace json = boost::json;

// Frequent English words. A word after a space is one token in the vocabularies of GPT, Llama, Mistral, Qwen and Gemma.
constexpr std::array<std::string_view, 128> kWords = {
    "the",   "of",       "and",   "to",     "in",      "is",     "that",    "for",     "it",     "as",     "was",   "with",    "be",
    "by",    "on",       "not",   "he",     "this",    "are",    "or",      "his",     "from",   "at",     "which", "but",     "have",
    "an",    "had",      "they",  "you",    "were",    "their",  "one",     "all",     "we",     "can",    "her",   "has",     "there",
    "been",  "if",       "more",  "when",   "will",    "would",  "who",     "so",      "no",     "time",   "year",  "people",  "way",
    "day",   "man",      "thing", "woman",  "life",    "child",  "world",   "school",  "state",  "family", "group", "country", "hand",
    "part",  "place",    "case",  "week",   "company", "system", "program", "work",    "number", "night",  "point", "home",    "water",
    "room",  "mother",   "area",  "money",  "story",   "fact",   "month",   "lot",     "right",  "study",  "book",  "eye",     "job",
    "word",  "business", "side",  "kind",   "head",    "house",  "service", "friend",  "father", "power",  "hour",  "game",    "line",
    "end",   "member",   "law",   "car",    "city",    "name",   "team",    "minute",  "idea",   "body",   "back",  "parent",  "face",
    "level", "office",   "door",  "health", "person",  "art",    "war",     "history", "party",  "result", "change"};

// Marks ids of prompts that are not in the workload, and of the part of a prompt after its ids.
constexpr std::uint64_t kOtherPrompts = 1, kPromptEnd = 2, kIds = 3, kTokens = 4;

std::uint64_t mixed(std::uint64_t a, std::uint64_t b) {
  return Random(Random(a).next() ^ b).next();
}

// Without a space before it, only a short word is one token for sure: the first word is one of the first words of the list.
void append_word(std::string& text, std::uint64_t number) {
  constexpr std::uint64_t kNumFirst = 16;
  const std::uint64_t num_choices = text.empty() ? kNumFirst : kWords.size();
  if (!text.empty()) text += ' ';
  text += kWords[number % num_choices];
}

// Walks through the ids of a prompt, from its first to its last token.
class IdWalk {
 public:
  IdWalk(const Workload& workload, const WorkloadRequest& request) : workload_(workload), request_(request) {}

  // Returns the id of the token at `position`, which must not decrease; nullopt after the last id.
  std::optional<std::uint64_t> at(std::uint64_t position) {
    const std::uint64_t index = position / workload_.id_tokens;
    while (run_ < request_.num_runs && index - first_index_ >= run().count) {
      first_index_ += run().count;
      ++run_;
    }
    return run_ < request_.num_runs ? std::optional(run().first + (index - first_index_)) : std::nullopt;
  }

 private:
  [[nodiscard]] const IdRun& run() const { return workload_.runs[request_.first_run + run_]; }

  const Workload& workload_;
  const WorkloadRequest& request_;
  std::uint32_t run_ = 0;
  std::uint64_t first_index_ = 0;  // index of the first id of the run
};

}  // namespace

std::string PromptWriter::body(std::uint32_t index) const {
  const WorkloadRequest& request = workload_.workload.requests[index];
  if (!workload_.texts.empty()) return body_of(json::string(workload_.texts[index]), request.output_tokens);
  if (!request.has_tokens || options_.is_chat) return body_of(json::string(words_of(request, index)), request.output_tokens);
  const auto first = workload_.workload.tokens.begin() + static_cast<std::ptrdiff_t>(request.first_token);
  return body_of(json::array(first, first + request.prompt_tokens), request.output_tokens);
}

std::string PromptWriter::other_body(std::uint64_t number, std::uint32_t num_words, std::uint32_t output_tokens) const {
  std::string text;
  for (std::uint32_t i = 0; i < num_words; ++i) append_word(text, mixed(mixed(seed_ ^ kOtherPrompts, number), i));
  return body_of(json::string(text), output_tokens);
}

std::string PromptWriter::warmup_body(std::uint32_t index) const {
  constexpr std::uint64_t kWarmup = 1ULL << 32U;
  const WorkloadRequest& request = workload_.workload.requests[index % workload_.workload.requests.size()];
  return other_body(kWarmup + index, num_words(request.prompt_tokens), request.output_tokens);
}

std::uint32_t PromptWriter::num_words(std::uint32_t prompt_tokens) const {
  return static_cast<std::uint32_t>(std::max(1.0, std::round((prompt_tokens - scale_.fixed_tokens) / scale_.tokens_per_word)));
}

std::string PromptWriter::words_of(const WorkloadRequest& request, std::uint32_t index) const {
  const Workload& workload = workload_.workload;
  IdWalk ids(workload, request);
  std::string text;
  const std::uint32_t num = num_words(request.prompt_tokens);
  for (std::uint32_t i = 0; i < num; ++i) {
    const auto position = static_cast<std::uint64_t>(i * scale_.tokens_per_word);
    std::uint64_t content = mixed(mixed(seed_, kPromptEnd), index);
    if (request.has_tokens && position < request.prompt_tokens) {
      content = mixed(kTokens, static_cast<std::uint64_t>(workload.tokens[request.first_token + position]));
    } else if (workload.id_tokens > 0) {
      if (const auto id = ids.at(position)) content = mixed(mixed(seed_ ^ kIds, *id < request.shared_ids ? 0 : request.name_space), *id);
    }
    append_word(text, mixed(content, i));
  }
  return text;
}

std::string PromptWriter::body_of(json::value prompt, std::uint32_t output_tokens) const {
  json::object body{{"model", options_.model}};
  if (options_.is_chat)
    body["messages"] = json::array{json::object{{"role", "user"}, {"content", std::move(prompt)}}};
  else
    body["prompt"] = std::move(prompt);
  body["max_tokens"] = output_tokens;
  body["stream"] = true;
  body["stream_options"] = json::object{{"include_usage", true}};
  if (options_.ignore_eos) body["ignore_eos"] = true;
  if (options_.temperature) body["temperature"] = *options_.temperature;
  for (const auto& [name, value] : options_.extra) body[name] = value;
  return json::serialize(body);
}

}  // namespace quire
