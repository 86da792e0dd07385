#pragma once
// Beam search: which likely continuations of a prompt are followed, and which are the answer. Pure: what each step offers comes in.
//
// The algorithm is that of vLLM's OpenAI server (v0.19.0, entrypoints/openai/engine/serving.py: beam_search, and vllm/beam_search.py). In
// each step every beam offers its 2 * width likeliest next tokens. Those that end a text are hypotheses; of the others, over all beams, the
// `width` likeliest by the log probability of all their outputs are the next beams. After max_tokens steps the beams are hypotheses as
// well, and the `width` of the best score are the answer. Where vLLM leaves the order of equals to its libraries, what was offered first
// goes first: by beam, then by likelihood.
//
// Unlike vLLM it ends as soon as no beam can come into the answer any more. The answer is the same.
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "quire/base/ids.h"
#include "quire/base/sampling.h"

namespace quire {

// A hypothesis of so many tokens, prompt and outputs without a last EOS.
double beam_score(double cum_logprob, std::uint32_t num_tokens, double length_penalty);

class BeamSearch {
 public:
  struct Options {
    std::uint32_t width = 1;
    std::uint32_t num_prompt_tokens = 1;
    std::uint32_t max_tokens = 1;  // outputs
    double length_penalty = 1.0;
    bool ignore_eos = false;  // such a token goes on like any other; only where it is the last, its hypothesis counts as shorter
    std::vector<TokenId> eos_ids{};
    std::optional<std::uint32_t> logprobs{};  // alternatives to remember for each output
  };
  // One that is followed: the beam of the last step that it goes on from, and the token it adds to that.
  struct Beam {
    std::uint32_t parent = 0;
    TokenId token = 0;
  };
  struct Hypothesis {
    std::vector<TokenId> tokens;  // outputs, a last EOS among them
    std::vector<PositionLogprobs> logprobs;
    double cum_logprob = 0.0;
    double score = 0.0;
    bool by_eos = false;  // ended by its last token
  };

  explicit BeamSearch(Options options);

  // Of each beam (of the prompt, in the first step) what may come next, likeliest first.
  void step(std::span<const std::vector<TokenLogprob>> offers);
  [[nodiscard]] std::uint32_t num_steps() const { return num_steps_; }
  // The outputs that each of them has are as many as there were steps.
  [[nodiscard]] std::span<const Beam> beams() const { return beams_; }
  [[nodiscard]] std::vector<TokenId> outputs(std::uint32_t beam) const;
  [[nodiscard]] bool is_over() const;
  // Once it is over, best first: as many as the search is wide, if so many tokens were offered in each step.
  [[nodiscard]] std::vector<Hypothesis> best() const;

 private:
  // An output, and the one before it.
  struct Node {
    std::uint32_t before = kNone;
    std::uint32_t position = 0;  // in alternatives_
    TokenLogprob token;
  };
  struct Path {
    std::uint32_t last = kNone;  // its last output
    double cum_logprob = 0.0;
    double score = 0.0;
    bool by_eos = false;
  };
  // What a beam may go on with, while a step chooses.
  struct Candidate;
  static constexpr std::uint32_t kNone = UINT32_MAX;

  [[nodiscard]] bool is_eos(TokenId token) const;
  [[nodiscard]] bool can_improve() const;
  [[nodiscard]] double score(double cum_logprob, std::uint32_t num_outputs) const;
  std::uint32_t remember(const Candidate& candidate, std::span<const std::uint32_t> positions);
  [[nodiscard]] Hypothesis describe(const Path& path) const;

  Options options_;
  std::uint32_t num_steps_ = 0;
  // Of all beams that ever were; a path names its last.
  std::vector<Node> nodes_;
  // What each beam offered in each step; empty where no log probabilities are asked for.
  std::vector<std::vector<TokenLogprob>> alternatives_;
  // Of the next step, likeliest first.
  std::vector<Beam> beams_;
  std::vector<Path> paths_;      // of each beam; of the prompt, before the first step
  std::vector<Path> completed_;  // the best so far, at most `width`, best first; equal ones in the order in which they came
};

}  // namespace quire
