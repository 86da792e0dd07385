#pragma once
// What is kept of a prompt so that a later one can be compared with it: hashes of its parts and of its tokens, no text. For clients that
// ask why their cache missed, in Anthropic's words (`diagnostics`) and OpenAI's (`prompt_cache_diagnostics`).
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quire/base/ids.h"
#include "server/request/completion_request.h"

namespace quire {

// Within one process: hashes are not for other machines.
struct PromptPrint {
  static constexpr std::size_t kBlock = 16;  // tokens

  std::uint64_t tools = 0, system = 0, settings = 0;
  std::vector<std::uint64_t> turns;   // a message each, behind the system prompt
  std::vector<std::uint64_t> blocks;  // a whole block each: of its tokens and all before it
  std::uint64_t num_tokens = 0;

  [[nodiscard]] std::uint64_t num_bytes() const { return sizeof(PromptPrint) + (turns.size() + blocks.size()) * sizeof(std::uint64_t); }
};

// The parts of a chat, before it is rendered; then its tokens.
[[nodiscard]] PromptPrint print_of(const ChatPrompt& chat);
void add_tokens(PromptPrint& print, std::span<const TokenId> tokens);

// The first part that is another one, in the order in which templates write them. A conversation that goes on, or is taken up further
// ahead, is the same.
enum class PromptChange : std::uint8_t { none, not_found, tools, system, settings, turns };
struct PromptComparison {
  PromptChange change = PromptChange::none;
  std::uint64_t num_reusable_tokens = 0;  // both begin with them, in whole blocks
  std::uint64_t num_missed_tokens = 0;    // behind these, that both might have had in common
};
[[nodiscard]] PromptComparison compare(const PromptPrint& earlier, const PromptPrint& now);

// Prints by the ids of answers, each tenant's its own; those that were kept or found the longest ago make room. Server's thread only.
class PromptPrints {
 public:
  explicit PromptPrints(std::uint64_t max_bytes) : max_bytes_(max_bytes) {}

  void keep(std::string_view tenant, const std::string& id, PromptPrint print);
  // Null: never kept, or gone.
  [[nodiscard]] const PromptPrint* find(std::string_view tenant, const std::string& id);
  [[nodiscard]] std::uint64_t num_bytes() const { return num_bytes_; }

 private:
  using Key = std::pair<std::string, std::string>;  // tenant, id
  struct Entry {
    Key key;
    PromptPrint print;
  };
  [[nodiscard]] static std::uint64_t bytes_of(const Entry& entry);

  std::uint64_t max_bytes_, num_bytes_ = 0;
  std::list<Entry> entries_;  // the latest first
  std::map<Key, std::list<Entry>::iterator> by_key_;
};

}  // namespace quire
