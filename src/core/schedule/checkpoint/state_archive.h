#pragma once
// Writes and reads the state of a core. StateWriter and StateReader visit the same fields in the same order.
//
// The members of an aggregate are written in order. A structure with private members, or with members that are not written, lists its
// fields in T::fields(form, self) or fields(form, value), which names every member. A new member therefore does not compile until it is
// listed, or a comment explains why it is not saved. A pointer to a request, a job or a transfer is written as the id of its target. Lists
// of numbers are written as raw memory, because most of the bytes are tokens and block hashes.
#include <algorithm>
#include <array>
#include <bit>
#include <boost/pfr/core.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
#include "base/intrusive_list.h"
#include "core/agent/job_table.h"
#include "core/journal/byte_stream.h"
#include "core/journal/left_out.h"
#include "core/journal/pseudonyms.h"
#include "core/schedule/checkpoint/state_fields.h"
#include "core/schedule/moves/open_transfers.h"
#include "core/schedule/moves/swap.h"
#include "core/schedule/requests/request_table.h"

namespace quire {

static_assert(std::endian::native == std::endian::little, "number lists are written as they are in memory");

template <class T>
inline constexpr bool kIsId = false;
template <class Tag, class Rep>
inline constexpr bool kIsId<Id<Tag, Rep>> = true;

// True for types that are copied as raw bytes: types without padding for which every combination of bytes is a valid value.
template <class T>
inline constexpr bool kIsRawState = (std::is_integral_v<T> && !std::is_same_v<T, bool>) || std::is_same_v<T, std::byte> || kIsId<T> ||
                                    std::is_same_v<T, BlockHash> || requires { requires T::kIsRaw; };

class StateWriter {
 public:
  static constexpr bool kIsReading = false;

  template <class... Fields>
  void operator()(const Fields&... values) {
    (put(values), ...);
  }
  [[nodiscard]] static bool is_good() { return true; }
  static void expect(bool /*holds*/, const char* /*rule*/) {}

  // Writes the token ids of a prompt and its outputs. The last `num_outputs` tokens are outputs.
  void tokens(const std::vector<TokenId>& tokens, std::int32_t num_outputs = 0) {
    if (!omits_tokens) return put(tokens);
    QUIRE_CHECK(num_outputs >= 0 && static_cast<std::size_t>(num_outputs) <= tokens.size(), "outputs are at the end of the tokens");
    const std::size_t first_output = tokens.size() - static_cast<std::size_t>(num_outputs);
    blank_.clear();
    blank_.reserve(tokens.size());
    for (std::size_t i = 0; i < tokens.size(); ++i) blank_.push_back(left_out(i < first_output ? 0 : i - first_output));
    put(blank_);
  }
  void drafts(const std::vector<TokenId>& tokens) {
    if (!omits_tokens) return put(tokens);
    blank_.clear();
    blank_.reserve(tokens.size());
    for (const TokenId token : tokens) blank_.push_back(token < 0 ? token : left_out());
    put(blank_);
  }
  void embeds(const std::vector<std::byte>& bytes) { omits_tokens ? put(std::vector<std::byte>(bytes.size())) : put(bytes); }

  void moved_by(TransferId /*id*/, std::span<const BlockId> /*blocks*/, std::span<const std::uint64_t> /*places*/) {}
  template <class Map>
  void named(const Map& map) {
    put(map.size());
    for (const auto& [name, value] : map) (*this)(name, value);
  }
  template <class Map, class List, class Is>
  void by_name(const Map& /*map*/, const List& list, Is /*is_listed*/) {
    put(list.size());
    for (const auto* one = list.front(); one != nullptr; one = List::next(*one)) {
      QUIRE_CHECK(one->name != nullptr, "a listed element has a name");
      put(*one->name);
    }
  }

  ByteWriter out;
  bool omits_tokens = false;                    // write placeholders instead of token ids (left_out.h)
  const PseudonymKey* pseudonym_key = nullptr;  // replaces block hashes by pseudonyms; null: hashes are written unchanged

 private:
  template <class T>
  void put(const T& value) {
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>)
      out.value(value);
    else if constexpr (kIsId<T>)
      out.value(value.value);
    else if constexpr (std::ranges::range<T>)
      put_list(value);
    else if constexpr (requires { T::fields(*this, value); })
      T::fields(*this, value);
    else if constexpr (requires { fields(*this, value); })
      fields(*this, value);
    else
      put_members(value);
  }
  template <class T>
  void put_members(const T& value) {
    boost::pfr::for_each_field(value, [this](const auto& member) { this->put(member); });
  }
  template <class List>
  void put_list(const List& list) {
    using T = std::ranges::range_value_t<List>;
    if constexpr (kIsRawState<T>) {
      out.text({reinterpret_cast<const char*>(list.data()), list.size() * sizeof(T)});
    } else {
      put(list.size());
      for (const auto& value : list) put(value);
    }
  }
  void put(const std::vector<BlockHash>& hashes) {
    out.number(hashes.size() * sizeof(BlockHash));
    for (const BlockHash& hash : hashes) {
      const BlockHash name = pseudonym_key != nullptr ? pseudonym(*pseudonym_key, hash) : hash;
      out.bytes.insert(out.bytes.end(), name.bytes.begin(), name.bytes.end());
    }
  }
  void put(const RepetitionDetection& detection) {
    const RepetitionDetection written = omits_tokens ? left_out(detection) : detection;
    put_members(written);
  }
  void put(const BlockStored& stored) {
    if (!omits_tokens) return fields(*this, stored);
    const BlockStored written = left_out(stored, pseudonym_key);
    fields(*this, written);
  }
  void put(const BlockRemoved& removed) {
    if (!omits_tokens) return fields(*this, removed);
    const BlockRemoved written = left_out(removed, pseudonym_key);
    fields(*this, written);
  }
  void put(const std::string& text) { out.text(text); }
  template <class T, std::size_t kSize>
  void put(const std::array<T, kSize>& values) {
    for (const T& value : values) put(value);
  }
  template <class T>
  void put(const std::optional<T>& value) {
    put(value.has_value());
    if (value) put(*value);
  }
  template <class First, class Second>
  void put(const std::pair<First, Second>& pair) {
    (*this)(pair.first, pair.second);
  }
  template <class... Kinds>
  void put(const std::variant<Kinds...>& value) {
    out.byte(static_cast<std::uint8_t>(value.index()));
    std::visit([this](const auto& kind) { this->put(kind); }, value);
  }
  void put(const std::unordered_map<std::uint64_t, std::uint32_t>& map) {
    std::vector<std::pair<std::uint64_t, std::uint32_t>> sorted(map.begin(), map.end());
    std::ranges::sort(sorted);
    put(sorted);
  }
  template <class T>
  void put(const std::unique_ptr<T>& value) {
    QUIRE_CHECK(value != nullptr, "a list element is not null");
    put(*value);
  }
  void put(Request* const& request) {
    put(request != nullptr);
    if (request != nullptr) put(request->id);
  }
  void put(Job* const& job) {
    put(job != nullptr);
    QUIRE_CHECK(job == nullptr || job->name != nullptr, "the job of a request is in the table");
    if (job != nullptr) put(*job->name);
  }
  void put(const PlaceholderRange& range) {
    // With a mask, embeds_in_range(0, 0) returns the total number of embeddings, because an end of 0 counts from the back. Without a mask
    // it returns 0.
    const bool has_mask = range.length() > 0 && (range.num_embeds() != range.length() || range.embeds_in_range(0, 0).second != 0);
    (*this)(range.offset(), range.length(), has_mask);
    for (std::int64_t i = 0; has_mask && i < range.length(); ++i) {
      const auto [first, second] = range.embeds_in_range(i, i + 1);
      put(second > first);
    }
  }

  std::vector<TokenId> blank_;
};

// Returns the largest valid value of each enum.
constexpr std::uint8_t last_of(RequestStatus /*kind*/) {
  return static_cast<std::uint8_t>(RequestStatus::finished_repetition);
}
constexpr std::uint8_t last_of(RequestEventKind /*kind*/) {
  return static_cast<std::uint8_t>(RequestEventKind::preempted);
}
constexpr std::uint8_t last_of(PauseState /*kind*/) {
  return static_cast<std::uint8_t>(PauseState::paused_all);
}
constexpr std::uint8_t last_of(TransferDirection /*kind*/) {
  return static_cast<std::uint8_t>(TransferDirection::store);
}
constexpr std::uint8_t last_of(TransferNeed /*kind*/) {
  return static_cast<std::uint8_t>(TransferNeed::layer_by_layer);
}
constexpr std::uint8_t last_of(SwappedBlocks::Stage /*kind*/) {
  return static_cast<std::uint8_t>(SwappedBlocks::Stage::loading);
}
constexpr std::uint8_t last_of(ScheduledKind /*kind*/) {
  return static_cast<std::uint8_t>(ScheduledKind::running);
}
constexpr std::uint8_t last_of(TableUpdate /*kind*/) {
  return static_cast<std::uint8_t>(TableUpdate::replace_one);
}

// Reads a state from arbitrary bytes. The memory it allocates is bounded by the size of the input, and an id must refer to an object that
// was read before. After the first error, all further values are empty. why() returns the rule that does not hold, or null if the bytes are
// malformed.
class StateReader {
 public:
  static constexpr bool kIsReading = true;

  StateReader(std::span<const std::uint8_t> bytes, RequestTable& table, JobTable* jobs, const OpenTransfers& transfers)
      : in(bytes), table_(&table), jobs_(jobs), transfers_(&transfers) {}

  template <class... Fields>
  void operator()(Fields&... values) {
    (get(values), ...);
  }
  [[nodiscard]] bool is_good() const { return !in.failed(); }
  [[nodiscard]] const char* why() const { return why_; }
  void expect(bool holds, const char* rule) {
    if (holds || in.failed()) return;
    why_ = rule;
    in.fail();
  }

  // Returns the tokens that a plan refers to. Returns fewer if the request does not have them any more, because the session was shortened
  // since.
  [[nodiscard]] std::span<const TokenId> tokens_of(RequestId id, std::size_t begin, std::size_t size) const {
    const Request* const request = table_->find_any(id);
    if (request == nullptr || begin > request->tokens.size()) return {};
    return std::span(request->tokens).subspan(begin, std::min(size, request->tokens.size() - begin));
  }
  void tokens(std::vector<TokenId>& tokens, std::int32_t /*num_outputs*/ = 0) { get(tokens); }
  void drafts(std::vector<TokenId>& tokens) { get(tokens); }
  void embeds(std::vector<std::byte>& bytes) { get(bytes); }
  void moved_by(TransferId id, std::span<const BlockId>& blocks, std::span<const std::uint64_t>& places) const {
    const OpenTransfers::Entry* const open = transfers_->find(id);
    if (open == nullptr) return;  // the transfer has ended
    blocks = open->blocks;
    places = open->places;
  }
  template <class Map>
  void named(Map& map) {
    for (std::size_t left = in.count(); left > 0 && is_good(); --left) {
      std::string name;
      get(name);
      const auto [added, is_new] = map.try_emplace(std::move(name));
      expect(is_new, "names are unique");
      added->second.name = &added->first;
      get(added->second);
    }
  }
  template <class Map, class List, class Is>
  void by_name(Map& map, List& list, Is is_listed) {
    for (std::size_t left = in.count(); left > 0 && is_good(); --left) {
      const auto found = map.find(std::string_view(in.text()));
      expect(found != map.end() && is_listed(found->second) && !List::linked(found->second),
             "a listed element exists and is in the list once");
      if (is_good()) list.push_back(found->second);
    }
    const auto num_listed = std::ranges::count_if(map, [&](const auto& one) { return is_listed(one.second); });
    expect(list.size() == static_cast<std::size_t>(num_listed), "the list contains all elements that belong to it");
  }

  ByteReader in;

 private:
  template <class T>
  void get(T& value) {
    if constexpr (std::is_enum_v<T>)
      in.choice(value, std::is_same_v<T, RequestEventKind> ? 1 : 0, last_of(value));
    else if constexpr (std::is_arithmetic_v<T>)
      in.value(value);
    else if constexpr (kIsId<T>)
      in.value(value.value);
    else if constexpr (requires { T::fields(*this, value); })
      T::fields(*this, value);
    else if constexpr (requires { fields(*this, value); })
      fields(*this, value);
    else
      boost::pfr::for_each_field(value, [this](auto& member) { this->get(member); });
  }
  void get(std::string& text) { text = in.text(); }
  template <class T>
  void get(std::optional<T>& value) {
    bool has_value = false;
    get(has_value);
    value.reset();
    if (has_value) get(value.emplace());
  }
  template <class First, class Second>
  void get(std::pair<First, Second>& pair) {
    (*this)(pair.first, pair.second);
  }
  template <class T, std::size_t kSize>
  void get(std::array<T, kSize>& values) {
    for (T& value : values) get(value);
  }
  template <class T>
  void get(std::vector<T>& values) {
    values.clear();
    if constexpr (kIsRawState<T>) {
      const std::string_view bytes = in.text();
      expect(bytes.size() % sizeof(T) == 0, "a list has a whole number of elements");
      if (!is_good() || bytes.empty()) return;
      values.resize(bytes.size() / sizeof(T));
      std::memcpy(values.data(), bytes.data(), bytes.size());
    } else {
      for (std::size_t left = in.count(); left > 0 && is_good(); --left) get(values.emplace_back());
    }
  }
  template <class... Kinds>
  void get(std::variant<Kinds...>& value) {
    get_kind(value, in.byte());
  }
  template <std::size_t kKind = 0, class... Kinds>
  void get_kind(std::variant<Kinds...>& value, std::size_t kind) {
    if constexpr (kKind == sizeof...(Kinds))
      in.fail();
    else if (kind == kKind)
      get(value.template emplace<kKind>());
    else
      get_kind<kKind + 1>(value, kind);
  }
  void get(std::unordered_map<std::uint64_t, std::uint32_t>& map) {
    std::vector<std::pair<std::uint64_t, std::uint32_t>> sorted;
    get(sorted);
    map = {sorted.begin(), sorted.end()};
    expect(map.size() == sorted.size(), "family ids are unique");
  }
  template <class T>
  void get(std::unique_ptr<T>& value) {
    value = std::make_unique<T>();
    get(*value);
  }
  void get(std::vector<Request*>& requests) {
    requests.clear();
    for (std::size_t left = in.count(); left > 0 && is_good(); --left) {
      Request* request = nullptr;
      get(request);
      expect(request != nullptr, "each request of a list exists");
      if (is_good()) requests.push_back(request);
    }
  }
  void get(Request*& request) {
    std::optional<RequestId> id;
    get(id);
    request = id ? table_->find_any(*id) : nullptr;
    expect(!id || request != nullptr, "each referenced request exists");
  }
  void get(Job*& job) {
    std::optional<std::string> name;
    get(name);
    job = name && jobs_ != nullptr ? jobs_->find(*name) : nullptr;
    expect(!name || job != nullptr, "each referenced job exists");
  }
  void get(PlaceholderRange& range) {
    std::uint32_t offset{}, length{};
    bool has_mask{};
    (*this)(offset, length, has_mask);
    range = PlaceholderRange(offset, length);
    if (!has_mask) return;
    std::vector<std::uint8_t> mask;
    for (std::uint32_t i = 0; i < length && is_good(); ++i) mask.push_back(in.byte());
    expect(length > 0, "a mask is not empty");
    range = PlaceholderRange(offset, mask);
  }

  RequestTable* table_;
  JobTable* jobs_;
  const OpenTransfers* transfers_;
  const char* why_ = nullptr;
};

}  // namespace quire
