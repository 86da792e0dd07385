// Fingerprints can be built and compared on any thread. The cache is used on the server's thread.
#include "server/request/prompt_fingerprint.h"

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <functional>
#include <iterator>

namespace quire {

namespace {

std::uint64_t hash_of(std::string_view text) {
  return std::hash<std::string_view>()(text);
}

std::uint64_t hash_of(const boost::json::value& value) {
  return hash_of(boost::json::serialize(value));
}

bool is_system(const boost::json::value& message) {
  const boost::json::value* const role = message.is_object() ? message.get_object().if_contains("role") : nullptr;
  return role != nullptr && role->is_string() && (role->get_string() == "system" || role->get_string() == "developer");
}

std::uint64_t num_alike(const std::vector<std::uint64_t>& one, const std::vector<std::uint64_t>& other) {
  return static_cast<std::uint64_t>(std::ranges::mismatch(one, other).in1 - one.begin());
}

}  // namespace

PromptFingerprint fingerprint_of(const ChatPrompt& chat) {
  PromptFingerprint fingerprint{.tools = hash_of(chat.tools),
                                .system = 0,
                                .settings = hash_of(boost::json::value(chat.template_kwargs)),
                                .turns = {},
                                .blocks = {},
                                .num_tokens = 0};
  const auto first_turn = std::ranges::find_if_not(chat.messages, is_system);
  for (auto message = chat.messages.begin(); message != first_turn; ++message)
    fingerprint.system = fingerprint.system * 31 + hash_of(*message);
  fingerprint.turns.reserve(static_cast<std::size_t>(std::distance(first_turn, chat.messages.end())));
  for (auto message = first_turn; message != chat.messages.end(); ++message) fingerprint.turns.push_back(hash_of(*message));
  return fingerprint;
}

void add_tokens(PromptFingerprint& fingerprint, std::span<const TokenId> tokens) {
  fingerprint.num_tokens = tokens.size();
  fingerprint.blocks.reserve(tokens.size() / PromptFingerprint::kBlock);
  std::uint64_t before = 0;
  for (std::size_t at = 0; at + PromptFingerprint::kBlock <= tokens.size(); at += PromptFingerprint::kBlock) {
    const std::span<const TokenId> block = tokens.subspan(at, PromptFingerprint::kBlock);
    before = before * 31 + hash_of(std::string_view(reinterpret_cast<const char*>(block.data()), block.size_bytes()));
    fingerprint.blocks.push_back(before);
  }
}

PromptComparison compare(const PromptFingerprint& earlier, const PromptFingerprint& now) {
  PromptComparison result;
  result.num_reusable_tokens = num_alike(earlier.blocks, now.blocks) * PromptFingerprint::kBlock;
  result.num_missed_tokens = std::min(earlier.num_tokens, now.num_tokens) - result.num_reusable_tokens;
  if (earlier.tools != now.tools)
    result.change = PromptChange::tools;
  else if (earlier.system != now.system)
    result.change = PromptChange::system;
  else if (earlier.settings != now.settings)
    result.change = PromptChange::settings;
  else if (num_alike(earlier.turns, now.turns) < std::min(earlier.turns.size(), now.turns.size()))
    result.change = PromptChange::turns;
  return result;
}

std::uint64_t PromptFingerprintCache::bytes_of(const Entry& entry) {
  constexpr std::uint64_t kOverhead = 256;  // nodes of the containers, and the allocator's overhead
  return kOverhead + 2 * (entry.key.first.size() + entry.key.second.size()) + entry.fingerprint.num_bytes();
}

void PromptFingerprintCache::keep(std::string_view tenant, const std::string& id, PromptFingerprint fingerprint) {
  entries_.push_front({Key(tenant, id), std::move(fingerprint)});
  num_bytes_ += bytes_of(entries_.front());
  by_key_.insert_or_assign(entries_.front().key, entries_.begin());
  while (num_bytes_ > max_bytes_ && !entries_.empty()) {
    num_bytes_ -= bytes_of(entries_.back());
    by_key_.erase(entries_.back().key);
    entries_.pop_back();
  }
}

const PromptFingerprint* PromptFingerprintCache::find(std::string_view tenant, const std::string& id) {
  const auto found = by_key_.find(Key(tenant, id));
  if (found == by_key_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return &found->second->fingerprint;
}

}  // namespace quire
