#pragma once
// What a scripted model says: the next text of the assistant as a function of the conversation so far, in the ChatML form of
// template.jinja. A file of rules, of which the first that fits is said:
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
  std::vector<std::string> last;      // texts behind the last thing that the assistant has said
  std::optional<std::uint32_t> turn;  // so many things the assistant has said before
  std::string say;
};

class Script {
 public:
  static Result<Script> read(const std::string& path);

  // `prompt`: a conversation up to the begin of the assistant's next text.
  [[nodiscard]] const std::string& answer(std::string_view prompt) const;

 private:
  std::vector<ScriptRule> rules_;
  std::string otherwise_;
};

// The script as a model: the token that follows a history. Remembers what it says to which prompt.
class ScriptedModel {
 public:
  // `tokenizer` must outlive this and have ChatML's marks. Errors: it has none.
  static Result<ScriptedModel> create(Script script, const Tokenizer& tokenizer);

  [[nodiscard]] TokenId next_token(std::span<const TokenId> history);

 private:
  ScriptedModel(Script script, const Tokenizer& tokenizer, std::vector<TokenId> opening, TokenId end)
      : script_(std::move(script)), tokenizer_(&tokenizer), opening_(std::move(opening)), end_(end) {}

  Script script_;
  const Tokenizer* tokenizer_;
  std::vector<TokenId> opening_;                                  // what an answer follows
  TokenId end_;                                                   // <|im_end|>
  std::map<std::vector<TokenId>, std::vector<TokenId>> answers_;  // by prompt
};

}  // namespace quire
