// Tests the two forms of a core's state without a core: what a checkpoint without tokens omits, and which bytes are not a valid state.
#include "core/schedule/checkpoint/state_archive.h"

#include <gtest/gtest.h>

#include "core/journal/pseudonyms.h"

namespace quire {
namespace {

using Tokens = std::vector<TokenId>;

// Reads the bytes that `form` has written through `read`. Returns whether all of them were a valid state.
template <class Read>
bool reads(const StateWriter& form, Read read) {
  RequestTable table(4);
  const OpenTransfers transfers(4, 4);
  StateReader reader(form.out.bytes, table, nullptr, transfers);
  read(reader);
  return reader.is_good() && reader.in.at_end();
}

TEST(StateForm, ReplacesTokensByPlaceholdersWhenTokensAreOmitted) {
  StateWriter form;
  form.omits_tokens = true;
  form.tokens({5, 6, 7, 8, 9, 10}, 4);
  form.tokens({11, 12, 13}, 0);
  form.tokens({14}, 1);
  form.drafts({15, -1});
  Tokens first, second, third, drafts;
  ASSERT_TRUE(reads(form, [&](StateReader& reader) {
    for (Tokens* tokens : {&first, &second, &third}) reader.tokens(*tokens);
    reader.drafts(drafts);
  }));
  EXPECT_EQ(first, (Tokens{-2, -2, -2, -3, -2, -3}));
  EXPECT_EQ(second, (Tokens{-2, -2, -2}));
  EXPECT_EQ(third, (Tokens{-2}));
  EXPECT_EQ(drafts, (Tokens{-2, -1}));
}

TEST(StateForm, KeepsTokensAndDraftTokens) {
  StateWriter form;
  form.tokens({5, 6, 7}, 1);
  form.drafts({8, -1});
  Tokens tokens, drafts;
  ASSERT_TRUE(reads(form, [&](StateReader& reader) {
    reader.tokens(tokens);
    reader.drafts(drafts);
  }));
  EXPECT_EQ(tokens, (Tokens{5, 6, 7}));
  EXPECT_EQ(drafts, (Tokens{8, -1}));
}

TEST(StateForm, ReplacesBlockHashesOfEventsByPseudonymsWhenTokensAreOmitted) {
  const PseudonymKey key{.words = {1, 2}};
  BlockHash hash;
  hash.bytes.fill(7);
  const std::vector<std::uint8_t> name(hash.bytes.begin(), hash.bytes.end());
  const BlockRemoved removed{.block_hash = name};
  BlockStored stored;
  stored.block_hashes = {name};
  for (const bool left_out : {false, true}) {
    StateWriter form;
    form.omits_tokens = left_out;
    form.pseudonym_key = &key;
    form(removed, stored);
    BlockRemoved removed_again;
    BlockStored stored_again;
    ASSERT_TRUE(reads(form, [&](StateReader& reader) { reader(removed_again, stored_again); }));
    EXPECT_EQ(removed_again.block_hash, left_out ? pseudonyms(key, name) : name);
    EXPECT_EQ(stored_again.block_hashes.at(0), left_out ? pseudonyms(key, name) : name);
  }
}

TEST(StateForm, KeepsTheMaskOfAPlaceholderRange) {
  const std::vector<std::vector<std::uint8_t>> masks = {{1}, {0}, {0, 1, 1}, {1, 1, 1}};
  std::vector<PlaceholderRange> ranges = {PlaceholderRange(), PlaceholderRange(3, 1), PlaceholderRange(3, 4)};
  for (const std::vector<std::uint8_t>& mask : masks) ranges.emplace_back(2, mask);
  for (const PlaceholderRange& range : ranges) {
    StateWriter form;
    form(range);
    PlaceholderRange again(9, 9);
    ASSERT_TRUE(reads(form, [&](StateReader& reader) { reader(again); }));
    EXPECT_EQ(again, range) << range.length();
  }
}

// Checks that the last value of the enum is read and that the value after it is refused.
template <class Enum>
void expect_last(Enum last) {
  for (const int beyond : {0, 1}) {
    StateWriter form;
    form.out.byte(static_cast<std::uint8_t>(static_cast<int>(last) + beyond));
    Enum value{};
    EXPECT_EQ(reads(form, [&](StateReader& reader) { reader(value); }), beyond == 0) << static_cast<int>(last);
    if (beyond == 0) EXPECT_EQ(value, last);
  }
}

TEST(StateForm, RefusesEnumValuesOutOfRange) {
  expect_last(RequestStatus::finished_repetition);
  expect_last(RequestEventKind::preempted);
  expect_last(PauseState::paused_all);
  expect_last(TransferDirection::store);
  expect_last(TransferNeed::layer_by_layer);
  expect_last(SwappedBlocks::Stage::loading);
  expect_last(ScheduledKind::running);
  expect_last(TableUpdate::replace_one);
}

TEST(StateForm, ShowsNoMoreTokensThanTheRequestStillHas) {
  RequestTable table(4);
  const OpenTransfers transfers(4, 4);
  table.create(RequestId{1}).tokens = {5, 6, 7, 8};
  const StateReader reader({}, table, nullptr, transfers);
  const auto shown = [&](std::uint64_t id, std::size_t begin, std::size_t size) {
    const std::span<const TokenId> tokens = reader.tokens_of(RequestId{id}, begin, size);
    return Tokens(tokens.begin(), tokens.end());
  };
  EXPECT_EQ(shown(1, 1, 2), (Tokens{6, 7}));
  EXPECT_EQ(shown(1, 2, 3), (Tokens{7, 8})) << "the span is cut at the end of the tokens";
  EXPECT_EQ(shown(1, 4, 3), Tokens());
  EXPECT_EQ(shown(1, 5, 3), Tokens());
  EXPECT_EQ(shown(2, 0, 3), Tokens()) << "the request is unknown";
}

}  // namespace
}  // namespace quire
