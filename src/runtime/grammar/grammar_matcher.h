#pragma once
// Grammars over the tokens of one vocabulary. llguidance.cpp does it with llguidance (MIT, crate 1.9.1) through its C interface;
// llguidance_absent.cpp stands in where that library is not there.
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "quire/base/error.h"
#include "quire/base/ids.h"
#include "quire/base/model_info.h"
#include "quire/base/structured_output.h"

namespace quire {

// Where one answer is in its grammar. Used by one thread at a time.
// Cheap to move, expensive to make: clone() one that was compiled. `allowed` has (vocab_size + 31) / 32 words, of the vocab_size that the
// compiler was made with.
class GrammarMatcher {
 public:
  struct State;
  explicit GrammarMatcher(std::unique_ptr<State> state);
  ~GrammarMatcher();
  GrammarMatcher(GrammarMatcher&&) noexcept;
  GrammarMatcher& operator=(GrammarMatcher&&) noexcept;

  // What may come next: token t where bit t % 32 of word t / 32 is set; only ids that end a generation where the answer is complete and
  // nothing may follow. False: a limit of the grammar's cost was met, and error() says which.
  bool fill(std::span<std::uint32_t> allowed);
  // False: it may not come here; then no other one is taken either.
  bool accept(TokenId token);
  // How many of them may come here, one after the other.
  [[nodiscard]] std::uint32_t count_valid(std::span<const TokenId> tokens);
  // Takes back the last ones.
  bool rollback(std::uint32_t num_tokens);
  // Nothing more may follow.
  [[nodiscard]] bool is_over() const;
  [[nodiscard]] std::string error() const;
  [[nodiscard]] GrammarMatcher clone() const;

 private:
  std::unique_ptr<State> state_;
};

// Immutable; any thread.
class GrammarCompiler {
 public:
  // Takes a moment: it orders the whole vocabulary. `vocab_size`: of the model, which may have more ids than its tokenizer. Errors:
  // `unsupported`: this build has no llguidance, or the tokenizer cannot be made.
  static Result<std::shared_ptr<const GrammarCompiler>> create(const TokenizerSpec& spec, std::uint32_t vocab_size);
  virtual ~GrammarCompiler() = default;

  // Errors: `invalid_argument`, field "structured_output": not a grammar, a keyword that cannot be held, or too large.
  [[nodiscard]] virtual Result<GrammarMatcher> compile(const StructuredOutput& wanted) const = 0;
};

}  // namespace quire
