#pragma once
// How many drafts of a draft model pay: more of them are more rows of the model's pass and more passes of the draft model, and worth what
// is accepted. Decided from what is measured, so it differs between runs; answers do not depend on it.
#include <cstdint>

namespace quire {

// Seconds as a line over a count, by least squares; what was measured long ago counts less and less.
class TimeLine {
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

// Owned by whoever proposes, one thread at a time. It knows what it is told: times of passes, and how drafts did.
class DraftLength {
 public:
  struct Choice {
    std::uint32_t num_drafts = 0;  // of each request
    // Tokens that the draft model may have to catch up with for a request: beyond it the request's end would come before they have paid.
    double max_missing = 0.0;
    bool is_probe = false;  // drafts do not pay, and one request has some, to see whether that has changed
  };

  // whatever_they_cost: always max_drafts.
  explicit DraftLength(std::uint32_t max_drafts, bool whatever_they_cost = false)
      : max_drafts_(max_drafts), whatever_they_cost_(whatever_they_cost) {}

  // A pass of the model: rows of its batch, of which so many were sampled from. One that is mostly prompts tells nothing.
  void saw_pass(std::uint32_t num_rows, std::uint32_t num_sampled_rows, double seconds);
  // Passes of the draft model over one token of each of these requests, in all.
  void saw_drafting(std::uint32_t num_requests, std::uint32_t num_passes, double seconds);
  // A pass of it over what it had to catch up with.
  void saw_feeding(std::uint32_t num_rows, double seconds);
  // Of a request: drafts that were verified, and those before the first wrong one.
  void saw_verified(std::uint32_t num_drafts, std::uint32_t num_right);
  void saw_ended(std::uint32_t num_outputs);

  // For the next step, of so many requests.
  [[nodiscard]] Choice choose(std::uint32_t num_requests);
  [[nodiscard]] double acceptance() const { return acceptance_; }

 private:
  [[nodiscard]] double expected_tokens(std::uint32_t num_drafts) const;
  [[nodiscard]] double step_s(std::uint32_t num_requests, std::uint32_t num_drafts) const;
  [[nodiscard]] Choice probe();

  std::uint32_t max_drafts_;
  bool whatever_they_cost_;
  double acceptance_ = 0.7;  // of a draft behind right ones; begins hopeful
  double outputs_per_request_ = 128.0;
  TimeLine pass_, draft_;
  double feed_row_s_ = 0.0;
  std::uint64_t num_choices_ = 0;
  // Of probes: while drafts do not pay.
  std::uint32_t num_steps_without_ = 0;
  std::uint32_t num_probes_left_ = 0;
  double without_s_ = 0.0, probe_s_ = 0.0;  // passes since the last probe, and what the draft model took for that
  bool is_probing_ = false;
};

}  // namespace quire
