// Binds SamplingParams, with vLLM's names: how the next token is sampled.
#include "quire/base/sampling.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include "engine/parts.h"

namespace quire::python {

void bind_sampling(nb::module_& m) {
  nb::class_<SamplingParams> c(m, "SamplingParams", "How the next token is chosen. Names and ranges are as in vLLM.");
  c.def("__init__", [](nb::pointer_and_handle<SamplingParams> self, const nb::kwargs& fields) {
    new (self.p) SamplingParams();
    nb::inst_mark_ready(self.h);
    set_options<SamplingParams>(self.h, fields, "SamplingParams");
  });
  c.def_rw("temperature", &SamplingParams::temperature, "0 to 2; 0: greedy.");
  c.def_rw("top_p", &SamplingParams::top_p, "Sample from the likeliest tokens with this total probability; above 0, at most 1.");
  c.def_rw("top_k", &SamplingParams::top_k, "Sample from the k likeliest tokens; 0: all tokens.");
  c.def_rw("min_p", &SamplingParams::min_p, "Minimum probability relative to the likeliest token, 0 to 1.");
  c.def_rw("repetition_penalty", &SamplingParams::repetition_penalty, "Penalty for tokens in the prompt and the output; above 0, 1: none.");
  c.def_rw("presence_penalty", &SamplingParams::presence_penalty, "Penalty for tokens in the output, -2 to 2.");
  c.def_rw("frequency_penalty", &SamplingParams::frequency_penalty, "Penalty for each occurrence of a token in the output, -2 to 2.");
  c.def_rw("seed", &SamplingParams::seed, nb::arg().none(),
           "Equal seed, prompt and parameters give equal tokens; None: made from the engine's seed.");
  c.def_rw("logprobs", &SamplingParams::logprobs, nb::arg().none(),
           "Number of alternatives to each sampled token, at most 20; None: no log probabilities.");
  c.def_rw("prompt_logprobs", &SamplingParams::prompt_logprobs, nb::arg().none(),
           "Number of alternatives to each prompt token except the first; None: no log probabilities.");
  c.def_rw("routed_experts", &SamplingParams::routed_experts, "Report the experts of each token (Output.routed_experts).");
  c.def_rw("logit_bias", &SamplingParams::logit_bias, "[(token, bias), ...]; each bias is added to the logit of its token.");
  c.def_rw("max_tokens", &SamplingParams::max_tokens, "Maximum number of output tokens.");
  c.def_rw("min_tokens", &SamplingParams::min_tokens, "Number of output tokens before EOS or a stop token may be sampled.");
  c.def_rw("stop_token_ids", &SamplingParams::stop_token_ids, "Token ids that end the answer, in addition to the model's EOS ids.");
  c.def_rw("ignore_eos", &SamplingParams::ignore_eos, "Continue after EOS.");
  c.def_rw("allowed_token_ids", &SamplingParams::allowed_token_ids, "Only these tokens are sampled; empty: all tokens.");
  c.def_rw("bad_words", &SamplingParams::bad_words, "Sequences of token ids that are never completed in the output.");
}

}  // namespace quire::python
