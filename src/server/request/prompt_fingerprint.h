#pragma once
// Fingerprints of prompts, for comparison with later prompts. A fingerprint contains hashes of the prompt's parts and tokens, but no text.
// Comparisons explain cache misses to clients, in the terms of Anthropic (`diagnostics`) and OpenAI (`prompt_cache_diagnostics`).
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

// Valid within one process, because the hashes are not portable to other machines.
struct PromptFingerprint {
  static constexpr std::size_t kBlock = 16;  // tokens per block

  std::uint64_t tools = 0, system = 0, settings = 0;
  std::vector<std::uint64_t> turns;   // one hash per message after the system prompt
  std::vector<std::uint64_t> blocks;  // one hash per full block, over its tokens and all earlier tokens
  std::uint64_t num_tokens = 0;

  [[nodiscard]] std::uint64_t num_bytes() const {
    return sizeof(PromptFingerprint) + (turns.size() + blocks.size()) * sizeof(std::uint64_t);
  }
};

// Hash a prompt: fingerprint_of() hashes the parts of a chat before the chat is rendered; add_tokens() then adds the prompt's tokens.
[[nodiscard]] PromptFingerprint fingerprint_of(const ChatPrompt& chat);
void add_tokens(PromptFingerprint& fingerprint, std::span<const TokenId> tokens);

// The first part that differs, in the order in which templates write the parts. If one conversation continues the other, no part counts as
// changed.
enum class PromptChange : std::uint8_t { none, not_found, tools, system, settings, turns };
struct PromptComparison {
  PromptChange change = PromptChange::none;
  std::uint64_t num_reusable_tokens = 0;  // length of the common prefix, in full blocks
  std::uint64_t num_missed_tokens = 0;    // tokens after the common prefix that both prompts could have shared
};
[[nodiscard]] PromptComparison compare(const PromptFingerprint& earlier, const PromptFingerprint& now);

// Stores fingerprints by answer id, separately for each tenant. Evicts the least recently used fingerprints. Used on the server's thread
// only.
class PromptFingerprintCache {
 public:
  explicit PromptFingerprintCache(std::uint64_t max_bytes) : max_bytes_(max_bytes) {}

  void keep(std::string_view tenant, const std::string& id, PromptFingerprint fingerprint);
  // Returns null if the fingerprint was never stored or has been evicted.
  [[nodiscard]] const PromptFingerprint* find(std::string_view tenant, const std::string& id);
  [[nodiscard]] std::uint64_t num_bytes() const { return num_bytes_; }

 private:
  using Key = std::pair<std::string, std::string>;  // tenant, id
  struct Entry {
    Key key;
    PromptFingerprint fingerprint;
  };
  [[nodiscard]] static std::uint64_t bytes_of(const Entry& entry);

  std::uint64_t max_bytes_, num_bytes_ = 0;
  std::list<Entry> entries_;  // most recently used first
  std::map<Key, std::list<Entry>::iterator> by_key_;
};

}  // namespace quire
