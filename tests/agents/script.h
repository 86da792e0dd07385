#pragma once
// A scripted model: computes the next text of the assistant from the conversation, in the ChatML form of template.jinja. The script is a
// file of rules; the first rule that matches gives the text:
//
//   {"rules": [{"has": ["\"name\": \"Read\""], "last": ["Fix it"], "turn": 0, "say": "<tool_call>..."}], "otherwise": "Done."}
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quire/base/error.h"
#include "quire/base/ids.h"
#include "quire/text/tokenizer.h"

namespace quire {

struct ScriptRule {
  std::vector<std::string> has;       // texts anywhere in the prompt
  std::vector<std::string> last;      // texts after the last text of the assistant
  std::optional<std::uint32_t> turn;  // number of earlier texts of the assistant
  std::string say;
};

class Script {
 public:
  static Result<Script> read(const std::string& path);

  // Returns the next text. `prompt` is a conversation that ends where the assistant's next text begins.
  [[nodiscard]] const std::string& answer(std::string_view prompt) const;

 private:
  std::vector<ScriptRule> rules_;
  std::string otherwise_;
};

// Uses a script as a model: returns the token that follows a history. Caches the answer to each prompt.
class ScriptedModel {
 public:
  // `tokenizer` must outlive this object. Errors: `tokenizer` does not have the special tokens of ChatML.
  static Result<ScriptedModel> create(Script script, const Tokenizer& tokenizer);

  [[nodiscard]] TokenId next_token(std::span<const TokenId> history);

 private:
  ScriptedModel(Script script, const Tokenizer& tokenizer, std::vector<TokenId> opening, TokenId end)
      : script_(std::move(script)), tokenizer_(&tokenizer), opening_(std::move(opening)), end_(end) {}

  Script script_;
  const Tokenizer* tokenizer_;
  std::vector<TokenId> opening_;                                  // begins an answer
  TokenId end_;                                                   // <|im_end|>
  std::map<std::vector<TokenId>, std::vector<TokenId>> answers_;  // by prompt
};

}  // namespace quire
