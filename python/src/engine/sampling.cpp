// SamplingParams: how the next token is chosen, under vLLM's names.
#include "quire/base/sampling.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include "engine/parts.h"

namespace quire::python {

void bind_sampling(nb::module_& m) {
  nb::class_<SamplingParams> c(m, "SamplingParams", "How the next token is chosen; names and ranges are vLLM's.");
  c.def("__init__", [](nb::pointer_and_handle<SamplingParams> self, const nb::kwargs& fields) {
    new (self.p) SamplingParams();
    nb::inst_mark_ready(self.h);
    set_all<SamplingParams>(self.h, fields, "SamplingParams");
  });
  c.def_rw("temperature", &SamplingParams::temperature, "0 is greedy; 0 to 2.");
  c.def_rw("top_p", &SamplingParams::top_p, "Sample from the likeliest tokens of this total probability.");
  c.def_rw("top_k", &SamplingParams::top_k, "Sample from the k likeliest tokens; 0: from all.");
  c.def_rw("min_p", &SamplingParams::min_p, "Least probability, relative to the likeliest token.");
  c.def_rw("repetition_penalty", &SamplingParams::repetition_penalty, "Over prompt and output.");
  c.def_rw("presence_penalty", &SamplingParams::presence_penalty, "Over output, -2 to 2.");
  c.def_rw("frequency_penalty", &SamplingParams::frequency_penalty, "Over output, -2 to 2.");
  c.def_rw("seed", &SamplingParams::seed, nb::arg().none(), "The same seed, prompt and parameters give the same tokens.");
  c.def_rw("logprobs", &SamplingParams::logprobs, nb::arg().none(),
           "Alternatives beside each token, at most 20; None: no log probabilities.");
  c.def_rw("prompt_logprobs", &SamplingParams::prompt_logprobs, nb::arg().none(),
           "The same beside each token of the prompt but the first.");
  c.def_rw("routed_experts", &SamplingParams::routed_experts, "Tell the experts of each token (Output.routed_experts).");
  c.def_rw("logit_bias", &SamplingParams::logit_bias, "[(token, bias), ...]");
  c.def_rw("max_tokens", &SamplingParams::max_tokens, "Longest answer.");
  c.def_rw("min_tokens", &SamplingParams::min_tokens, "Neither EOS nor a stop id before so many.");
  c.def_rw("stop_token_ids", &SamplingParams::stop_token_ids, "Besides the model's EOS ids.");
  c.def_rw("ignore_eos", &SamplingParams::ignore_eos, "Go on behind EOS.");
  c.def_rw("allowed_token_ids", &SamplingParams::allowed_token_ids, "No others are drawn; empty: all.");
  c.def_rw("bad_words", &SamplingParams::bad_words, "Sequences of token ids that are not completed.");
}

}  // namespace quire::python
