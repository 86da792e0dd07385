#pragma once
// Grammars over the tokens of one vocabulary. llguidance.cpp implements them with llguidance (MIT, crate 1.9.1) through its C interface.
// llguidance_absent.cpp replaces llguidance.cpp in builds without the library.
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "quire/base/error.h"
#include "quire/base/ids.h"
#include "quire/base/model_info.h"
#include "quire/base/structured_output.h"

namespace quire {

// The position of one output in its grammar. Used by one thread at a time. A matcher is cheap to move and to clone() but expensive to
// compile. `allowed` has (vocab_size + 31) / 32 words, with the vocab_size of the compiler.
class GrammarMatcher {
 public:
  struct State;
  explicit GrammarMatcher(std::unique_ptr<State> state);
  ~GrammarMatcher();
  GrammarMatcher(GrammarMatcher&&) noexcept;
  GrammarMatcher& operator=(GrammarMatcher&&) noexcept;

  // Sets bit t % 32 of word t / 32 for each token t that may come next. If the output is complete and no token may follow, sets only the
  // bits of end-of-generation tokens. Returns false if the grammar exceeds a cost limit; error() names the limit.
  bool fill(std::span<std::uint32_t> allowed);
  // Advances by a token. Returns false if the token may not come next; the matcher then accepts no other token either.
  bool accept(TokenId token);
  // Returns the length of the longest prefix of `tokens` that the grammar allows next.
  [[nodiscard]] std::uint32_t count_valid(std::span<const TokenId> tokens);
  // Removes the last `num_tokens` accepted tokens.
  bool rollback(std::uint32_t num_tokens);
  // Returns whether no token may follow.
  [[nodiscard]] bool is_over() const;
  [[nodiscard]] std::string error() const;
  [[nodiscard]] GrammarMatcher clone() const;

 private:
  std::unique_ptr<State> state_;
};

// Compiles grammars. Immutable, so any thread may use a compiler.
class GrammarCompiler {
 public:
  // Creates a compiler, which takes time because the whole vocabulary is sorted. `vocab_size` is the model's and may be larger than the
  // tokenizer's. Error `unsupported`: this build has no llguidance, or the tokenizer cannot be created.
  static Result<std::shared_ptr<const GrammarCompiler>> create(const TokenizerSpec& spec, std::uint32_t vocab_size);
  virtual ~GrammarCompiler() = default;

  // Compiles a grammar. Errors on field "structured_output": `invalid_argument` if the text is not a grammar or a keyword cannot be
  // enforced, `too_large` if the text is too long.
  [[nodiscard]] virtual Result<GrammarMatcher> compile(const StructuredOutput& wanted) const = 0;
};

}  // namespace quire
