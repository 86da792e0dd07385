#pragma once
// Chooses the number of draft tokens from a draft model that produces tokens fastest. More draft tokens add rows to the model's pass and
// passes of the draft model; they save passes of the model if they are accepted. The choice depends on measured times, so it differs
// between runs. The output does not depend on the choice.
#include <cstdint>

namespace quire {

// Fits seconds as a linear function of a count, by least squares. The weight of old measurements decreases gradually.
class LinearTimeModel {
 public:
  void add(double count, double seconds);
  [[nodiscard]] bool is_known() const { return num_added_ > 0; }
  [[nodiscard]] double at(double count) const;

 private:
  std::uint64_t num_added_ = 0;
  double mean_count_ = 0.0, mean_s_ = 0.0;
  double variance_ = 0.0, covariance_ = 0.0;
  double slope_s_ = 0.0;
};

// Owned by the proposer and used by one thread at a time. Its inputs are the times of passes and the numbers of accepted draft tokens.
class DraftLength {
 public:
  struct Choice {
    std::uint32_t num_drafts = 0;  // per request
    // Maximum number of tokens that the draft model may have to catch up on for a request. With more, the request would end before its
    // draft tokens pay off.
    double max_missing = 0.0;
    bool is_probe = false;  // draft tokens do not increase the speed; one request gets draft tokens, to detect a change
  };

  // `always_draft`: choose() always returns `max_drafts`.
  explicit DraftLength(std::uint32_t max_drafts, bool always_draft = false) : max_drafts_(max_drafts), always_draft_(always_draft) {}

  // Reports a pass of the model: its number of rows, and how many rows were sampled from. Passes with mostly prompt tokens are ignored.
  void record_pass(std::uint32_t num_rows, std::uint32_t num_sampled_rows, double seconds);
  // Reports passes of the draft model with one token per request; `seconds` is their total time.
  void record_drafting(std::uint32_t num_requests, std::uint32_t num_passes, double seconds);
  // Reports a pass of the draft model that catches up on tokens.
  void record_catch_up(std::uint32_t num_rows, double seconds);
  // Reports the verified draft tokens of a request, and how many came before the first rejected one.
  void record_verified(std::uint32_t num_drafts, std::uint32_t num_accepted);
  void record_finished(std::uint32_t num_outputs);

  // Returns the choice for the next step, which has `num_requests` requests.
  [[nodiscard]] Choice choose(std::uint32_t num_requests);
  [[nodiscard]] double acceptance() const { return acceptance_; }

 private:
  [[nodiscard]] double expected_tokens(std::uint32_t num_drafts) const;
  [[nodiscard]] double step_s(std::uint32_t num_requests, std::uint32_t num_drafts) const;
  [[nodiscard]] Choice probe();

  std::uint32_t max_drafts_;
  bool always_draft_;
  double acceptance_ = 0.7;  // probability that a draft token after accepted ones is accepted; initially optimistic
  double outputs_per_request_ = 128.0;
  LinearTimeModel pass_, draft_;
  double catch_up_row_s_ = 0.0;
  std::uint64_t num_choices_ = 0;
  // State of probes, which run while draft tokens do not pay off.
  std::uint32_t num_steps_without_drafts_ = 0;
  std::uint32_t num_probes_left_ = 0;
  double time_since_probe_s_ = 0.0, probe_s_ = 0.0;  // time of passes since the last probe, and of the draft model in it
  bool is_probing_ = false;
};

}  // namespace quire
