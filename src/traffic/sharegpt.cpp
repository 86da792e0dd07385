// Reads a file in ShareGPT's form: a JSON array, or one line each, of {"conversations": [{"from": "human", "value": TEXT}, ...]}. The usual
// file has 670 MB, so its entries are parsed one by one.
#include <fmt/format.h>

#include <boost/json.hpp>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/random.h"
#include "format/mapped_file.h"
#include "traffic/workloads.h"

namespace quire {
namespace {

namespace json = boost::json;

constexpr std::size_t kBytesPerToken = 4, kMinTokens = 4, kMaxPromptTokens = 1024, kMaxTotalTokens = 2048;

// Splits a text into its outermost JSON objects, without parsing them.
class ObjectSplitter {
 public:
  explicit ObjectSplitter(std::string_view text) : text_(text) {}

  // Returns the next object; empty at the end of the text, also if the last object is incomplete (has_rest()).
  std::string_view next() {
    const std::size_t begin = text_.find('{', at_);
    if (begin == std::string_view::npos) {
      at_ = text_.size();
      return {};
    }
    std::size_t depth = 0;
    bool in_string = false;
    for (at_ = begin; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (in_string) {
        if (c == '\\') ++at_;
        if (c == '"') in_string = false;
      } else if (c == '"') {
        in_string = true;
      } else if (c == '{') {
        ++depth;
      } else if (c == '}' && --depth == 0) {
        ++at_;
        return text_.substr(begin, at_ - begin);
      }
    }
    has_rest_ = true;
    return {};
  }
  [[nodiscard]] bool has_rest() const { return has_rest_; }

 private:
  std::string_view text_;
  std::size_t at_ = 0;
  bool has_rest_ = false;
};

struct Turns {
  std::string question;
  std::uint32_t answer_tokens = 0;
};

std::unexpected<Error> bad_file(const std::string& path, std::string what) {
  return fail(ErrorCode::invalid_argument, "--dataset-path", fmt::format("'{}' {}", path, what),
              "use a JSON file with [{\"conversations\": [{\"value\": TEXT}, ...]}, ...]");
}

const json::string* value_of(const json::value& turn) {
  const json::value* const value = turn.is_object() ? turn.get_object().if_contains("value") : nullptr;
  return value != nullptr ? value->if_string() : nullptr;
}

std::size_t tokens_of(std::string_view text) {
  return (text.size() + kBytesPerToken - 1) / kBytesPerToken;
}

// Adds the first two turns of a conversation if their lengths are allowed. Returns false if the object is no conversation.
bool take_conversation(const json::value& entry, std::optional<std::uint32_t> output_len, std::vector<Turns>& turns) {
  const json::value* const found = entry.get_object().if_contains("conversations");
  if (found == nullptr || !found->is_array()) return false;
  const json::array& values = found->get_array();
  if (values.size() < 2) return true;
  const json::string* const question = value_of(values[0]);
  const json::string* const answer = value_of(values[1]);
  if (question == nullptr || answer == nullptr) return false;
  const std::size_t prompt = tokens_of(*question), output = output_len ? *output_len : tokens_of(*answer);
  const bool is_output_long_enough = output_len.has_value() || output >= kMinTokens;
  if (prompt < kMinTokens || !is_output_long_enough || prompt > kMaxPromptTokens || prompt + output > kMaxTotalTokens) return true;
  turns.push_back({std::string(std::string_view(*question)), static_cast<std::uint32_t>(output)});
  return true;
}

}  // namespace

Result<TrafficWorkload> sharegpt_workload(const std::string& path, std::optional<std::uint32_t> output_len, std::uint32_t num_prompts,
                                          std::uint64_t seed) {
  const auto file = MappedFile::open(path);
  if (!file) return fail(file.error().code, "--dataset-path", file.error().to_string(), "use an existing file");
  const std::span<const std::byte> bytes = file->bytes();
  ObjectSplitter objects({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  std::vector<Turns> turns;
  std::uint64_t number = 0;
  for (std::string_view object = objects.next(); !object.empty(); object = objects.next()) {
    ++number;
    boost::system::error_code code;
    const json::value entry = json::parse(object, code);
    if (code) return bad_file(path, fmt::format("has an error in entry {}: {}", number, code.message()));
    if (!take_conversation(entry, output_len, turns)) return bad_file(path, fmt::format("has no conversation in entry {}", number));
  }
  if (objects.has_rest()) return bad_file(path, fmt::format("ends in the middle of entry {}", number + 1));
  if (turns.empty()) return bad_file(path, "has no conversation with two turns of allowed lengths");
  Random random(seed);
  for (std::size_t i = turns.size(); i > 1; --i) std::swap(turns[i - 1], turns[random.below(i)]);
  TrafficWorkload made;
  made.workload.name = "sharegpt";
  // vLLM repeats conversations too if the file has fewer than num_prompts.
  for (std::uint32_t i = 0; i < num_prompts; ++i) {
    const Turns& turn = turns[i % turns.size()];
    made.texts.push_back(turn.question);
    WorkloadRequest& request = made.workload.requests.emplace_back();
    request.prompt_tokens = static_cast<std::uint32_t>(tokens_of(turn.question));
    request.output_tokens = turn.answer_tokens;
  }
  if (turns.size() < num_prompts)
    made.workload.notes.push_back(fmt::format("the file has {} usable conversations, so some prompts are repeated", turns.size()));
  return made;
}

}  // namespace quire
