#pragma once
// Beam search: decides which continuations of a prompt are followed, and which are the answer. It is pure: the caller passes in what each
// step offers.
//
// The algorithm is vLLM's (OpenAI server of v0.19.0, entrypoints/openai/engine/serving.py: beam_search, and vllm/beam_search.py). In each
// step every beam offers its 2 * width likeliest next tokens. A candidate that ends the text becomes a hypothesis. Of the other candidates
// of all beams, the `width` with the highest cumulative log probability are the next beams. After max_tokens steps the beams are hypotheses
// as well, and the `width` with the best score are the answer. vLLM leaves the order of equals to its libraries; here the first offer comes
// first: by beam, then by likelihood.
//
// Unlike vLLM it ends as soon as no beam can enter the answer any more. The answer is the same.
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "quire/base/ids.h"
#include "quire/base/sampling.h"

namespace quire {

// Returns the score of a hypothesis. `num_tokens` counts the prompt and the outputs without a last EOS.
double beam_score(double cum_logprob, std::uint32_t num_tokens, double length_penalty);

class BeamSearch {
 public:
  struct Options {
    std::uint32_t width = 1;
    std::uint32_t num_prompt_tokens = 1;
    std::uint32_t max_tokens = 1;  // outputs
    double length_penalty = 1.0;
    bool ignore_eos = false;  // EOS continues a beam like any other token; a hypothesis with EOS as last token still counts as shorter
    std::vector<TokenId> eos_ids{};
    std::optional<std::uint32_t> logprobs{};  // number of alternatives to remember for each output
  };
  // A beam that is followed: its parent among the beams of the last step, and the token that it adds.
  struct Beam {
    std::uint32_t parent = 0;
    TokenId token = 0;
  };
  struct Hypothesis {
    std::vector<TokenId> tokens;  // outputs, including a last EOS
    std::vector<PositionLogprobs> logprobs;
    double cum_logprob = 0.0;
    double score = 0.0;
    bool by_eos = false;  // ended by its last token
  };

  explicit BeamSearch(Options options);

  // Makes a step. `offers` has one list per beam (in the first step one for the prompt): the candidates for its next token, likeliest
  // first.
  void step(std::span<const std::vector<TokenLogprob>> offers);
  [[nodiscard]] std::uint32_t num_steps() const { return num_steps_; }
  // Returns the open beams. Each has as many outputs as there were steps.
  [[nodiscard]] std::span<const Beam> beams() const { return beams_; }
  [[nodiscard]] std::vector<TokenId> outputs(std::uint32_t beam) const;
  [[nodiscard]] bool is_over() const;
  // Returns the answer, best first, once the search is over. It has `width` hypotheses if each step offered enough tokens.
  [[nodiscard]] std::vector<Hypothesis> best() const;

 private:
  // An output token and the node before it.
  struct Node {
    std::uint32_t before = kNone;
    std::uint32_t position = 0;  // index into alternatives_
    TokenLogprob token;
  };
  struct Path {
    std::uint32_t last = kNone;  // node of its last output
    double cum_logprob = 0.0;
    double score = 0.0;
    bool by_eos = false;
  };
  // A possible continuation of a beam, during a step.
  struct Candidate;
  static constexpr std::uint32_t kNone = UINT32_MAX;

  [[nodiscard]] bool is_eos(TokenId token) const;
  [[nodiscard]] bool can_improve() const;
  [[nodiscard]] double score(double cum_logprob, std::uint32_t num_outputs) const;
  std::uint32_t remember(const Candidate& candidate, std::span<const std::uint32_t> positions);
  [[nodiscard]] Hypothesis describe(const Path& path) const;

  Options options_;
  std::uint32_t num_steps_ = 0;
  // The nodes of all beams that ever existed; a path refers to its last node.
  std::vector<Node> nodes_;
  // The alternatives that each beam offered in each step; empty if no log probabilities are requested.
  std::vector<std::vector<TokenLogprob>> alternatives_;
  // The beams of the next step, likeliest first.
  std::vector<Beam> beams_;
  std::vector<Path> paths_;      // of each beam; of the prompt, before the first step
  std::vector<Path> completed_;  // the best so far, at most `width`, best first; equal ones in the order of arrival
};

}  // namespace quire
