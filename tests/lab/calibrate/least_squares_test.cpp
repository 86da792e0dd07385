// Tests the fit of weights: it gives numpy's weights, and neither units nor dependent terms matter.
#include "lab/calibrate/least_squares.h"

#include <gtest/gtest.h>

#include <vector>

namespace quire {
namespace {

Observation observation_of(int kind, int i) {
  Observation one{.sizes = {1.0, (7 * i) % 5 * 3.0, (3 * i) % 4 * 1.0, (5 * i) % 7 * 2.0, (11 * i) % 6 * (i % 3) * 1.0}, .value = 0.0};
  const Terms& s = one.sizes;
  if (kind == 0) one.value = 1.0 + (13 * i) % 9;
  if (kind == 1) one.value = 2.0 + 0.5 * s[1] + s[2] + 0.25 * s[3] + 0.125 * s[4] + i % 2 * 0.5;
  if (kind == 2) one.value = 40.0 - s[1] - s[2];
  return one;
}

std::vector<Observation> twelve_observations(int kind, const Terms& scales = {1, 1, 1, 1, 1}) {
  std::vector<Observation> all;
  for (int i = 0; i < 12; ++i) {
    all.push_back(observation_of(kind, i));
    for (std::size_t term = 0; term < kNumTerms; ++term) all.back().sizes[term] *= scales[term];
  }
  return all;
}

// The expected weights are numpy's, as the best of lstsq over all sets of terms without negative weights.
TEST(LeastSquares, WeightsEqualThoseOfNumpy) {
  struct Case {
    int kind;
    unsigned terms;
    Terms weights;
  };
  for (const Case& one : {Case{0, 0b11111, {0.819223714, 0, 0, 0.133308952, 0.429759913}},
                          {0, 0b10111, {1.16108867, 0, 0.04867619, 0, 0.441216072}},
                          {0, 0b11110, {0, 0, 0, 0.244407694, 0.517043617}},
                          {1, 0b11111, {2.01177818, 0.521149497, 1.08182068, 0.262851242, 0.0965924974}},
                          {1, 0b10111, {2.10370536, 0.594485805, 1.30415134, 0, 0.309279354}},
                          {1, 0b11110, {0, 0.587623081, 1.670131, 0.335775034, 0.185016765}},
                          {2, 0b11111, {31.7894686, 0, 0, 0, 0}},
                          {2, 0b11110, {0, 0.692893238, 5.85918836, 1.73828512, 0.683272154}}}) {
    const Terms weights = fit_non_negative(twelve_observations(one.kind), one.terms);
    for (std::size_t i = 0; i < kNumTerms; ++i) EXPECT_NEAR(weights[i], one.weights[i], 1e-8 * one.weights[i]) << one.kind << " " << i;
  }
}

TEST(LeastSquares, UnitsDoNotMatter) {
  const Terms plain = fit_non_negative(twelve_observations(1));
  for (const Terms& scales : {Terms{1, 1e-12, 1e12, 1e-8, 1e8}, {1e9, 1e-9, 1, 1e15, 1e-15}, {1e-12, 1e-12, 1e-12, 1e-12, 1e-12}}) {
    const Terms weights = fit_non_negative(twelve_observations(1, scales));
    for (std::size_t i = 0; i < kNumTerms; ++i) EXPECT_NEAR(weights[i] * scales[i], plain[i], 1e-6 * plain[i]) << i;
  }
  // Errors are relative, so the unit of the values does not matter either.
  for (const double unit : {1e-9, 1e9}) {
    std::vector<Observation> observations = twelve_observations(1);
    for (Observation& one : observations) one.value *= unit;
    const Terms weights = fit_non_negative(observations);
    for (std::size_t i = 0; i < kNumTerms; ++i) EXPECT_NEAR(weights[i] / unit, plain[i], 1e-6 * plain[i]) << i;
  }
}

TEST(LeastSquares, IgnoresObservationsWithoutDuration) {
  std::vector<Observation> observations = twelve_observations(1);
  const Terms plain = fit_non_negative(observations);
  observations.insert(observations.begin(), {{1, 9, 9, 9, 9}, 0.0});
  observations.push_back({{1, 7, 7, 7, 7}, -3.0});
  EXPECT_EQ(fit_non_negative(observations), plain);
}

// Terms that are multiples of each other share a weight.
TEST(LeastSquares, DependentTermsDoNotPreventAFit) {
  std::vector<Observation> observations;
  for (int i = 1; i <= 6; ++i) observations.push_back({{1.0, 2.0 * i, 4.0 * i, 0.0, 0.0}, 3.0 + 8.0 * i});
  const Terms weights = fit_non_negative(observations);
  EXPECT_NEAR(weights[0], 3.0, 1e-9);
  EXPECT_NEAR(2.0 * weights[1] + 4.0 * weights[2], 8.0, 1e-9);
  EXPECT_EQ(weights[3], 0.0);
  EXPECT_EQ(weights[4], 0.0);
}

TEST(LeastSquares, TermsAndWorkerCorrespond) {
  const WorkerModel worker = worker_of({1, 2, 3, 4, 5});
  EXPECT_EQ(worker.host_s, 0.0);
  EXPECT_EQ(worker.source, "");
  EXPECT_EQ(weights_of(worker), (Terms{1, 2, 3, 4, 5}));
  const StepSizes sizes{.prefill_tokens = 10, .decode_rows = 20, .context_tokens = 30, .prefill_pairs = 40};
  const Terms terms = terms_of(sizes), weights = weights_of(worker);
  EXPECT_EQ(terms, (Terms{1, 10, 20, 30, 40}));
  double sum = 0.0;
  for (std::size_t i = 0; i < kNumTerms; ++i) sum += weights[i] * terms[i];
  EXPECT_EQ(sum, worker.seconds(sizes));
}

}  // namespace
}  // namespace quire
