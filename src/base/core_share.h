#pragma once
// How much of the cores' time a thread in the background takes while others want them: as much as it needs where cores are free, and a
// fixed share where it has to wait for one.
#include <chrono>
#include <cstdint>

namespace quire {

// A bucket of credit that fills with time and is emptied by computing. Only computing while others wait for the cores is charged. One
// thread.
class ShareLimit {
 public:
  // Of the time of so many cores, 0 to 1.
  ShareLimit(double share, std::uint32_t num_cores) : rate_(share * num_cores) {}

  // Seconds, each from any zero: now; that the thread has computed; that it has waited for a core. false: it has had its share, and cores
  // are wanted.
  bool may_go_on(double now_s, double computed_s, double waited_s);
  // Behind a call that said yes: whether what can wait may be done, too. Where cores are wanted half of the credit is left for what cannot.
  [[nodiscard]] bool has_to_spare() const { return credit_s_ >= 0.5 * kMostCredit_s || !is_crowded_; }

 private:
  double rate_;  // seconds of computing a second
  double credit_s_ = kMostCredit_s;
  double now_s_ = -1.0, computed_s_ = 0.0, waited_s_ = 0.0;  // of the call before; < 0: there was none
  double lately_computed_s_ = 0.0, lately_waited_s_ = 0.0;
  bool is_crowded_ = false;

  static constexpr double kMostCredit_s = 0.1;  // what a pause is worth: a few prompts' blocks
};

// The same of the calling thread, by its clocks. Where the system does not tell how long threads wait it may always go on.
class CoreShare {
 public:
  explicit CoreShare(double share);
  ~CoreShare();
  CoreShare(const CoreShare&) = delete;
  CoreShare& operator=(const CoreShare&) = delete;

  bool may_go_on();
  [[nodiscard]] bool has_to_spare() const { return limit_.has_to_spare(); }

 private:
  ShareLimit limit_;
  int waits_;  // a file; < 0: none
};

// How long to rest where may_go_on() says no: asking takes some of the share.
inline constexpr std::chrono::milliseconds kShareRest(10);

// Of a machine whose cores all compute, for what the cache keeps elsewhere: it is a wager on prompts that come again.
inline constexpr double kStoringShare = 0.005;

}  // namespace quire
