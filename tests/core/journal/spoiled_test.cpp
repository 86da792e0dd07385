// Recorders and players that are used as no core uses them.
#include <gtest/gtest.h>

#include <vector>

#include "core/journal/answer_queue.h"
#include "core/journal/pseudonyms.h"
#include "core/schedule/core_driver.h"
#include "quire/journal.h"
#include "quire/seam_record.h"
#include "support/scripted_connector.h"

namespace quire {
namespace {

TEST(SpoiledJournalDeathTest, AnswersAreGivenOutInOrder) {
  AnswerQueue queue({});
  EXPECT_DEATH(queue.damaged(), "an answer was taken");
  EXPECT_DEATH(
      {
        queue.next_ = 1;
        (void)queue.take(SeamCall::connector_reset, {});
      },
      "answers are given out in order");
}

TEST(SpoiledJournalDeathTest, WhoWaitedForItsBlocksIsAmongThoseThatFailed) {
  test::ScriptedConnector connector;
  const SeamRecorder recorder({.connector = &connector});
  const SeamPlayer player({.has_connector = true, .answers = {}});
  std::vector<RequestId> failed = {RequestId{1}};
  const char* const message = "who waited for its blocks is among those that failed";
  EXPECT_DEATH(recorder.seams().connector->order_failed(2, failed, failed), message);
  EXPECT_DEATH(player.seams().connector->order_failed(2, failed, failed), message);
}

TEST(SpoiledJournalDeathTest, WhereTokensAreLeftOutNamesAreRecordedUnderAKey) {
  EXPECT_DEATH(
      JournalRecorder({}, [](std::span<const std::uint8_t>) {}, NameKey{}), "names of blocks are recorded where their tokens are not");
  NameKey key;
  key.name_bytes = 8;
  EXPECT_DEATH((void)pseudonym(key, {}), "names have 16 bytes or 32");
}

TEST(SpoiledJournalDeathTest, OnlyACoreHasACheckpoint) {
  const JournalRecorder recorder({}, [](std::span<const std::uint8_t>) {});
  EXPECT_FALSE(recorder.can_checkpoint());
  EXPECT_DEATH((void)recorder.checkpoint(), "a core was made with the recorder's seams");
  const auto core = Core::create(test::sync_config(), recorder.seams()).value();
  EXPECT_TRUE(recorder.can_checkpoint());
  ASSERT_TRUE(core->add({.id = RequestId{1}, .prompt = std::vector<TokenId>{1, 2}}).has_value());
  EXPECT_TRUE(recorder.can_checkpoint());
  (void)core->schedule();
  EXPECT_FALSE(recorder.can_checkpoint()) << "a plan is outstanding";
}

}  // namespace
}  // namespace quire
