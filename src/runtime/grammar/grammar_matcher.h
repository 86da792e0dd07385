#pragma once
// Grammars over the tokens of one vocabulary. llguidance.cpp implements them with llguidance (MIT, crate 1.9.1) through its C interface;
// llguidance_absent.cpp replaces it in builds without that library.
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "quire/base/error.h"
#include "quire/base/ids.h"
#include "quire/base/model_info.h"
#include "quire/base/structured_output.h"

namespace quire {

// Position of one answer in its grammar. Used by one thread at a time. A matcher is cheap to move and expensive to compile, so clone() a
// compiled one. `allowed` has (vocab_size + 31) / 32 words, for the vocab_size that the compiler was made with.
class GrammarMatcher {
 public:
  struct State;
  explicit GrammarMatcher(std::unique_ptr<State> state);
  ~GrammarMatcher();
  GrammarMatcher(GrammarMatcher&&) noexcept;
  GrammarMatcher& operator=(GrammarMatcher&&) noexcept;

  // Sets bit t % 32 of word t / 32 for each token t that may come next. If the answer is complete and nothing may follow, only ids that end
  // a generation are set. Returns false if a limit of the grammar's cost was reached; error() says which.
  bool fill(std::span<std::uint32_t> allowed);
  // Returns false if the token may not come next. The matcher then accepts no other token either.
  bool accept(TokenId token);
  // Returns how many of the tokens may come next, one after the other.
  [[nodiscard]] std::uint32_t count_valid(std::span<const TokenId> tokens);
  // Takes back the last tokens.
  bool rollback(std::uint32_t num_tokens);
  // Returns whether nothing more may follow.
  [[nodiscard]] bool is_over() const;
  [[nodiscard]] std::string error() const;
  [[nodiscard]] GrammarMatcher clone() const;

 private:
  std::unique_ptr<State> state_;
};

// Immutable; any thread may use it.
class GrammarCompiler {
 public:
  // Takes a while, because it sorts the whole vocabulary. `vocab_size` is the model's, which may have more ids than its tokenizer. Error
  // `unsupported`: this build has no llguidance, or the tokenizer cannot be made.
  static Result<std::shared_ptr<const GrammarCompiler>> create(const TokenizerSpec& spec, std::uint32_t vocab_size);
  virtual ~GrammarCompiler() = default;

  // Errors on field "structured_output": `invalid_argument` if the text is not a grammar or a keyword cannot be enforced, `too_large` if it
  // is too long.
  [[nodiscard]] virtual Result<GrammarMatcher> compile(const StructuredOutput& wanted) const = 0;
};

}  // namespace quire
