#pragma once
// Decides for a beam search which continuations of a prompt are followed, and which hypotheses are the answer. The class is pure: the
// caller passes in the candidates of each step.
//
// The algorithm is vLLM's (OpenAI server of v0.19.0, entrypoints/openai/engine/serving.py: beam_search, and vllm/beam_search.py). In each
// step every beam offers its 2 * width most probable next tokens as candidates. A candidate that ends the text becomes a hypothesis. The
// `width` other candidates of all beams with the highest cumulative log probability become the next beams. After max_tokens steps the beams
// also become hypotheses, and the `width` hypotheses with the best scores are the answer. vLLM leaves the order of equal scores to its
// libraries; here the earlier candidate comes first: by beam, then by probability.
//
// Unlike vLLM, the search ends as soon as no beam can enter the answer any more. The answer is the same.
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "quire/base/ids.h"
#include "quire/base/sampling.h"

namespace quire {

// Returns the score of a hypothesis. `num_tokens` counts the prompt and the outputs, without an EOS at the end.
double beam_score(double cum_logprob, std::uint32_t num_tokens, double length_penalty);

class BeamSearch {
 public:
  struct Options {
    std::uint32_t width = 1;
    std::uint32_t num_prompt_tokens = 1;
    std::uint32_t max_tokens = 1;  // outputs
    double length_penalty = 1.0;
    bool ignore_eos = false;  // EOS continues a beam like any other token, but the length of a hypothesis does not count an EOS at its end
    std::vector<TokenId> eos_ids{};
    std::optional<std::uint32_t> logprobs{};  // number of alternatives to remember for each output
  };
  // A beam that is followed: the index of its parent among the beams of the last step, and the token that it adds.
  struct Beam {
    std::uint32_t parent = 0;
    TokenId token = 0;
  };
  struct Hypothesis {
    std::vector<TokenId> tokens;  // output tokens, including an EOS at the end
    std::vector<PositionLogprobs> logprobs;
    double cum_logprob = 0.0;
    double score = 0.0;
    bool by_eos = false;  // the last token is an EOS that ended the text
  };

  explicit BeamSearch(Options options);

  // Advances the search by one step. `offers` has one list per beam (in the first step, one list for the prompt): the candidates for the
  // next token of the beam, the most probable first.
  void step(std::span<const std::vector<TokenLogprob>> offers);
  [[nodiscard]] std::uint32_t num_steps() const { return num_steps_; }
  // Returns the open beams. The number of outputs of each beam is the number of steps.
  [[nodiscard]] std::span<const Beam> beams() const { return beams_; }
  [[nodiscard]] std::vector<TokenId> outputs(std::uint32_t beam) const;
  [[nodiscard]] bool is_over() const;
  // Returns the hypotheses of the answer, the best first. Must be called only when the search is over. There are `width` hypotheses if each
  // step offered enough tokens.
  [[nodiscard]] std::vector<Hypothesis> best() const;

 private:
  // An output token, and the index of the node before it.
  struct Node {
    std::uint32_t before = kNone;
    std::uint32_t position = 0;  // index into alternatives_
    TokenLogprob token;
  };
  struct Path {
    std::uint32_t last = kNone;  // node of the last output
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
  // The nodes of all beams that have existed. A path refers to its last node.
  std::vector<Node> nodes_;
  // The alternatives that each beam offered in each step; empty if no log probabilities were requested.
  std::vector<std::vector<TokenLogprob>> alternatives_;
  // The beams of the next step, the most probable first.
  std::vector<Beam> beams_;
  std::vector<Path> paths_;      // paths of the beams; before the first step, the path of the prompt
  std::vector<Path> completed_;  // the best hypotheses so far, at most `width`, the best first; equal scores in the order of completion
};

}  // namespace quire
