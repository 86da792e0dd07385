// Tests the modelled links: the order of their copies, and when each copy is reported.
#include "lab/simulate/modelled_links.h"

#include <fmt/format.h>

#include <limits>

#include "lab/lab_support.h"

namespace quire {
namespace {

const TierModel kTier{.bytes = 1, .load_bytes_per_s = 100.0, .store_bytes_per_s = 50.0, .latency_s = 0.5};

Transfer transfer(std::uint64_t id, TransferDirection direction, std::span<const BlockId> blocks) {
  Transfer made;
  made.id = TransferId{id};
  made.direction = direction;
  made.blocks = blocks;
  return made;
}

TEST(ModelledLinks, ProcessCopiesOfOneDirectionInOrder) {
  const std::vector<BlockId> one = {BlockId{1}}, two = {BlockId{2}, BlockId{3}};
  ModelledLinks links(kTier, 100);
  links.begin(transfer(1, TransferDirection::load, two), 1.0);   // runs from 1 to 3, reported at 3.5
  links.begin(transfer(2, TransferDirection::load, one), 1.0);   // runs from 3 to 4, reported at 4.5
  links.begin(transfer(3, TransferDirection::store, one), 0.0);  // runs from 0 to 2, reported at 2.5
  EXPECT_DOUBLE_EQ(links.next_end_s(), 2.5);
  EXPECT_DOUBLE_EQ(links.end_of(std::vector{TransferId{1}, TransferId{3}}), 3.5);
  EXPECT_TRUE(links.take_completed(2.0).empty());
  const auto over = links.take_completed(3.5);
  ASSERT_EQ(over.size(), 2U);
  EXPECT_EQ(over[0].transfer, TransferId{3});
  EXPECT_EQ(over[1].transfer, TransferId{1});
  EXPECT_EQ(over[1].bytes, 200U);
  EXPECT_DOUBLE_EQ(over[1].seconds, 2.5);
  EXPECT_DOUBLE_EQ(links.next_end_s(), 4.5);
  EXPECT_DOUBLE_EQ(links.end_of(std::vector{TransferId{1}}), 0.0);
  EXPECT_DOUBLE_EQ(links.loaded_bytes(), 300.0);
  EXPECT_DOUBLE_EQ(links.stored_bytes(), 100.0);
}

TEST(ModelledLinks, ReportCopiesOnceInTheOrderOfTheirEnds) {
  const std::vector<BlockId> one = {BlockId{1}}, three = {BlockId{2}, BlockId{3}, BlockId{4}};
  const TierModel tier{.bytes = 1, .load_bytes_per_s = 100.0, .store_bytes_per_s = 100.0, .latency_s = 0.0};
  ModelledLinks links(tier, 100);
  EXPECT_EQ(links.next_end_s(), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(links.take_completed(1e9).empty());
  links.begin(transfer(5, TransferDirection::load, three), 0.0);   // ends at 3
  links.begin(transfer(4, TransferDirection::store, three), 0.0);  // ends at 3
  links.begin(transfer(3, TransferDirection::store, one), 7.0);    // the link is idle from 3 to 7, ends at 8
  links.begin(transfer(2, TransferDirection::load, one), 1.0);     // waits for the link until 3, ends at 4
  EXPECT_DOUBLE_EQ(links.next_end_s(), 3.0);
  EXPECT_DOUBLE_EQ(links.end_of(std::vector{TransferId{2}, TransferId{5}}), 4.0);
  EXPECT_DOUBLE_EQ(links.end_of(std::vector{TransferId{3}, TransferId{5}}), 8.0);
  EXPECT_DOUBLE_EQ(links.end_of(std::vector{TransferId{9}}), 0.0);
  const auto texts = [&](double now_s) {
    std::string text;
    for (const TransferCompletion& one_over : links.take_completed(now_s))
      text += fmt::format("{}: {} in {:g} ", one_over.transfer.value, one_over.bytes, one_over.seconds);
    return text;
  };
  EXPECT_EQ(texts(2.99), "");
  EXPECT_EQ(texts(3.0), "4: 300 in 3 5: 300 in 3 ");
  EXPECT_EQ(texts(3.0), "");
  EXPECT_DOUBLE_EQ(links.next_end_s(), 4.0);
  EXPECT_EQ(texts(100.0), "2: 100 in 1 3: 100 in 1 ");
  EXPECT_EQ(links.next_end_s(), std::numeric_limits<double>::infinity());
  EXPECT_DOUBLE_EQ(links.loaded_bytes(), 400.0);
  EXPECT_DOUBLE_EQ(links.stored_bytes(), 400.0);
}

}  // namespace
}  // namespace quire
