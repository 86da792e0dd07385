// Tests the bytes of a journal: numbers, flags, invalid frames and records of seams.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/journal/answer_format.h"
#include "core/journal/answer_queue.h"
#include "core/journal/byte_stream.h"
#include "core/journal/journal_format.h"
#include "quire/journal.h"
#include "support/scripted_connector.h"

namespace quire::test {
namespace {

using Bytes = std::vector<std::uint8_t>;

TEST(NumberBytes, UseAsFewBytesAsTheirBitsNeed) {
  for (unsigned bits = 0; bits < 64; ++bits) {
    for (const std::uint64_t number : {std::uint64_t{1} << bits, (std::uint64_t{1} << bits) - 1, (std::uint64_t{127} << bits)}) {
      ByteWriter out;
      out.number(number);
      std::size_t expected = 1;
      for (std::uint64_t left = number >> 7U; left > 0; left >>= 7U) ++expected;
      EXPECT_EQ(out.bytes.size(), expected) << number;
      ByteReader in(out.bytes);
      EXPECT_EQ(in.number(), number);
      EXPECT_TRUE(in.at_end() && !in.failed());
    }
  }
}

TEST(NumberBytes, RefuseMoreThan64Bits) {
  for (const std::uint8_t last : {1, 2, 3, 0x7F, 0x81}) {
    Bytes bytes(9, 0xFF);
    bytes.push_back(last);
    bytes.push_back(0);
    ByteReader in(bytes);
    EXPECT_EQ(in.number(), last == 1 ? UINT64_MAX : 0U);
    EXPECT_EQ(in.failed(), last != 1) << int{last};
  }
}

TEST(SeamFlags, RefuseUnknownFlags) {
  for (int flags = 0; flags < 256; ++flags) {
    const Bytes bytes = {static_cast<std::uint8_t>(flags)};
    ByteReader in(bytes);
    SeamRecord record;
    read_seam_flags(in, record);
    EXPECT_EQ(in.failed(), flags > 63) << flags;
    if (flags <= 63) EXPECT_EQ(seam_flags(record), flags);
  }
}

TEST(JournalBytes, ReadNothingAfterAnInvalidFrame) {
  const Bytes call = {14, 131, 0};
  Bytes bytes = journal_header_frame({});
  const Bytes header(bytes.begin() + 8 + kFrameHeadBytes, bytes.end());
  append_frame(bytes, bytes.size(), FrameKind::calls, call);
  const std::size_t at = bytes.size();
  append_frame(bytes, bytes.size(), FrameKind::header, header);
  append_frame(bytes, bytes.size(), FrameKind::calls, call);
  const auto reader = JournalReader::open(bytes).value();
  EXPECT_TRUE(reader->next());
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(reader->next()) << "a frame of calls follows it";
  EXPECT_EQ(reader->damage(), fmt::format("the frame at byte {} is a second header", at));
}

TEST(JournalBytes, RefuseAnEndFrameWithoutExactlyOneKnownValue) {
  for (const Bytes& end : {Bytes{}, Bytes{99}, Bytes{0, 0}}) {
    Bytes bytes = journal_header_frame({});
    const std::size_t at = bytes.size();
    append_frame(bytes, bytes.size(), FrameKind::end, end);
    const auto reader = JournalReader::open(bytes).value();
    EXPECT_FALSE(reader->next());
    EXPECT_EQ(reader->damage(), fmt::format("the frame at byte {} is not a valid end", at));
  }
}

TEST(JournalBytes, RefuseAFileThatEndsBeforeItsVersion) {
  const Bytes beginning = journal_header_frame({});
  for (std::size_t size = 0; size < kJournalMagic.size(); ++size) {
    const Bytes cut(beginning.begin(), beginning.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_EQ(JournalReader::open(cut).error().code, ErrorCode::invalid_argument) << size;
  }
}

TEST(SeamRecordBytes, RefuseAChangedHead) {
  const Bytes good = encode(SeamRecord{.has_tools = true, .answers = {}});
  ASSERT_TRUE(decode_seam_record(good).has_value());
  for (std::size_t at = 0; at + 1 < good.size(); ++at) {
    Bytes other = good;
    other[at] ^= 1U;
    const auto read = decode_seam_record(other);
    ASSERT_FALSE(read.has_value()) << at;
    EXPECT_EQ(read.error().field, "record");
  }
}

SeamAnswer answer_to(SeamCall call, std::vector<std::uint64_t> values, std::uint64_t question = SeamQuestion().digest()) {
  return {.call = call, .request = {}, .question = question, .values = std::move(values), .bytes = {}};
}

TEST(AnswerNumbers, CountAnswersThatWereConsumed) {
  AnswerQueue queue(SeamRecord{});
  for (int i = 0; i < 3; ++i) {
    std::vector<SeamAnswer> answers(4, answer_to(SeamCall::connector_reset, {1}));
    if (i == 2) answers[1].request = RequestId{7};
    queue.give(answers);
    for (int taken = 0; taken < (i == 2 ? 1 : 4); ++taken) EXPECT_TRUE(queue.take_flag(SeamCall::connector_reset, {}));
  }
  EXPECT_FALSE(queue.take_flag(SeamCall::connector_reset, {}));
  EXPECT_EQ(queue.status().error().message,
            "answer 9 is for Connector::reset for request 7, but the core calls Connector::reset for request 0");
}

// Collects the transfers that a player adds.
struct Given final : TransferList {
  std::optional<TransferId> add(const Transfer& transfer) override {
    needs.push_back(static_cast<int>(transfer.need));
    num_blocks.push_back(transfer.blocks.size());
    return TransferId{needs.size()};
  }
  std::vector<int> needs;
  std::vector<std::size_t> num_blocks;
};

TEST(PlayedConnector, ClampsAnUnknownTransferNeed) {
  StepPlan plan;
  plan.step = StepId{5};
  SeamRecord record{.has_connector = true, .answers = {}};
  record.answers = {answer_to(SeamCall::connector_plan_transfers, {1, 0, 9, 0, 0, 1, 4, 1, 4, 2, 1, 1, 0, 0, 0, 0},
                              SeamQuestion().add(std::uint64_t{5}).digest())};
  SeamPlayer player(record);
  Given given;
  player.seams().connector->plan_transfers(plan, given);
  EXPECT_TRUE(player.status().has_value());
  EXPECT_EQ(given.needs, (std::vector<int>{2, 1}));
  EXPECT_EQ(given.num_blocks, (std::vector<std::size_t>{1, 0}));
}

TEST(PlayedConnector, OrdersNothingWithoutAnAnswer) {
  SeamPlayer player(SeamRecord{.has_connector = true, .answers = {}});
  std::vector<RequestId> finishing = {RequestId{3}, RequestId{1}}, reported = {RequestId{2}};
  player.seams().connector->order_failed(0, finishing, reported);
  EXPECT_FALSE(player.status().has_value());
  EXPECT_EQ(finishing, (std::vector<RequestId>{RequestId{3}, RequestId{1}}));
  EXPECT_EQ(reported, std::vector<RequestId>{RequestId{2}});
}

TEST(RecordedConnector, RecordsTheTransfersOfEachStepAndForwardsToTheInnerConnector) {
  const BlockId block[] = {BlockId{4}};
  ScriptedConnector connector;
  connector.has_states = true;
  SeamRecorder recorder({.connector = &connector});
  Connector& recorded = *recorder.seams().connector;
  EXPECT_TRUE(recorded.supports_states());
  Given given;
  StepPlan plan;
  for (std::uint64_t step = 1; step <= 3; ++step) {
    plan.step = StepId{step};
    connector.transfers = {transfer_of(RequestId{1}, block)};
    recorded.plan_transfers(plan, given);
  }
  const SeamRecord record = recorder.take();
  ASSERT_EQ(record.answers.size(), 3U);
  for (const SeamAnswer& answer : record.answers) EXPECT_EQ(answer.values, record.answers[0].values);
  EXPECT_EQ(given.needs.size(), 3U);
}

}  // namespace
}  // namespace quire::test
