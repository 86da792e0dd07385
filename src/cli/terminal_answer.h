#pragma once
// Generates one answer and prints it as it is generated.
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "cli/output_queue.h"
#include "quire/engine.h"
#include "quire/text/tokenizer.h"

namespace quire {

struct TerminalAnswer {
  std::string text;
  std::size_t num_tokens = 0;
  std::uint32_t num_cached_tokens = 0;
  double first_token_s = 0.0;  // from submission to the first token
  double rest_s = 0.0;         // from the first token to the end
};

// Runs `request`, passes its text to `print` in pieces, and returns the answer's counts and times. `queue` must outlive the engine, and no
// other request in flight may deliver to it.
Result<TerminalAnswer> print_answer(Engine& engine, const Tokenizer& tokenizer, EngineRequest request, OutputQueue& queue,
                                    const std::function<void(std::string_view)>& print);

}  // namespace quire
