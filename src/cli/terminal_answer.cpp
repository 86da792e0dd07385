#include "cli/terminal_answer.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "quire/text/detokenizer.h"

namespace quire {

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Result<TerminalAnswer> print_answer(Engine& engine, const Tokenizer& tokenizer, EngineRequest request, OutputQueue& queue,
                                    const std::function<void(std::string_view)>& print) {
  const auto start = std::chrono::steady_clock::now();
  const Result<RequestId> id = engine.submit(std::move(request), queue);
  if (!id.has_value()) return std::unexpected(id.error());
  TerminalAnswer answer;
  Detokenizer detokenizer(tokenizer);
  const auto say = [&](std::string_view piece) {
    print(piece);
    answer.text += piece;
  };
  for (bool finished = false; !finished;) {
    for (const RequestOutput& output : queue.take()) {
      if (answer.num_tokens == 0) answer.first_token_s = seconds_since(start);
      answer.num_tokens += output.tokens.size();
      answer.num_cached_tokens = std::max(answer.num_cached_tokens, output.num_cached_tokens);
      for (const TokenId token : output.tokens) say(detokenizer.push(token));
      finished = finished || output.finished;
      if (!output.error.empty())
        return fail(ErrorCode::invalid_argument, "request", output.error, "check the model and the prompt, then run the command again");
    }
  }
  // Prints the rest: an answer may end in the middle of a character.
  say(detokenizer.flush());
  answer.rest_s = seconds_since(start) - answer.first_token_s;
  return answer;
}

}  // namespace quire
