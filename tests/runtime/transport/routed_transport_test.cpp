// Tests several transports behaving as one.
#include "runtime/transport/routed_transport.h"

#include <gtest/gtest.h>

#include <string>

namespace quire {
namespace {

// Records all calls; a transfer ends when it is waited for.
class RecordingTransport final : public Transport {
 public:
  RecordingTransport(std::string name, std::vector<std::string>& notes) : name_(std::move(name)), notes_(notes) {}
  void attach(const KvPages& /*pages*/, std::function<void()> notify) override {
    note("attach");
    notify_ = std::move(notify);
  }
  void start(const Transfer& transfer) override { note("start " + std::to_string(transfer.id.value)); }
  void poll(std::vector<TransferCompletion>& over) override {
    over.insert(over.end(), over_.begin(), over_.end());
    over_.clear();
  }
  void wait(TransferId transfer) override {
    note("wait " + std::to_string(transfer.value));
    over_.push_back({.transfer = transfer, .bytes = 1});
    notify_();
  }
  void wait_for_layer(TransferId transfer, std::uint32_t layer) override {
    note("layer " + std::to_string(layer) + " of " + std::to_string(transfer.value));
  }
  void layer_written(std::uint32_t layer) override { note("written " + std::to_string(layer)); }
  void detach() override { note("detach"); }

 private:
  void note(const std::string& what) { notes_.push_back(name_ + ": " + what); }

  std::string name_;
  std::vector<std::string>& notes_;
  std::function<void()> notify_;
  std::vector<TransferCompletion> over_;
};

class RoutedTransportTest : public testing::Test {
 protected:
  RoutedTransportTest() {
    routed_.add(4, std::make_shared<RecordingTransport>("four", notes_));
    routed_.add(0, std::make_shared<RecordingTransport>("none", notes_));
    routed_.attach({}, [this] { ++num_notices_; });
  }
  void start(std::uint64_t id, std::uint32_t tier) {
    Transfer transfer;
    transfer.id = TransferId{id};
    transfer.tier = tier;
    routed_.start(transfer);
  }

  std::vector<std::string> notes_;
  int num_notices_ = 0;
  RoutedTransport routed_;
};

TEST_F(RoutedTransportTest, SendsATransferToTheTransportOfItsTier) {
  start(7, 4);
  start(8, 0);
  routed_.wait_for_layer(TransferId{7}, 2);
  routed_.wait(TransferId{8});
  routed_.wait(TransferId{7});
  EXPECT_EQ(notes_, (std::vector<std::string>{"four: attach", "none: attach", "four: start 7", "none: start 8", "four: layer 2 of 7",
                                              "none: wait 8", "four: wait 7"}));
  EXPECT_EQ(num_notices_, 2);
  std::vector<TransferCompletion> over;
  routed_.poll(over);
  ASSERT_EQ(over.size(), 2U);
  EXPECT_EQ(over[0].transfer, TransferId{7});
  EXPECT_EQ(over[1].transfer, TransferId{8});
}

TEST_F(RoutedTransportTest, ForgetsTransfersAfterReportingTheirCompletion) {
  start(7, 4);
  routed_.wait(TransferId{7});
  std::vector<TransferCompletion> over;
  routed_.poll(over);
  routed_.poll(over);
  EXPECT_EQ(over.size(), 1U);
  const std::size_t num_notes = notes_.size();
  routed_.wait(TransferId{7});
  routed_.wait_for_layer(TransferId{7}, 0);
  EXPECT_EQ(notes_.size(), num_notes);
}

TEST_F(RoutedTransportTest, NotifiesAllTransportsOfLayersAndDetach) {
  notes_.clear();
  routed_.layer_written(3);
  routed_.detach();
  EXPECT_EQ(notes_, (std::vector<std::string>{"four: written 3", "none: written 3", "four: detach", "none: detach"}));
}

TEST_F(RoutedTransportTest, SendsOtherTiersToTheDefaultTransport) {
  RoutedTransport outer(std::make_shared<RecordingTransport>("rest", notes_));
  outer.add(9, std::make_shared<RecordingTransport>("nine", notes_));
  outer.attach({}, [] {});
  notes_.clear();
  for (std::uint32_t tier = 8; tier < 11; ++tier) {
    Transfer transfer;
    transfer.id = TransferId{tier};
    transfer.tier = tier;
    outer.start(transfer);
  }
  outer.wait(TransferId{8});
  outer.wait(TransferId{9});
  EXPECT_EQ(notes_, (std::vector<std::string>{"rest: start 8", "nine: start 9", "rest: start 10", "rest: wait 8", "nine: wait 9"}));
  std::vector<TransferCompletion> over;
  outer.poll(over);
  EXPECT_EQ(over.size(), 2U);
}

TEST_F(RoutedTransportTest, AnUnknownTierAbortsTheProgram) {
  EXPECT_DEATH(start(1, 3), "the tier of a transfer has a transport");
  EXPECT_DEATH(routed_.add(4, nullptr), "a tier has one transport");
}

}  // namespace
}  // namespace quire
