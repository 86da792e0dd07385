#pragma once
// Lets a data structure state its invariants once for two uses: to stop the program if an invariant is broken, and to report which one is
// broken.
//
//   const Rule* T::broken_rule() const { QUIRE_RULE(a == b, "the counts are equal"); return nullptr; }
//   void T::check_invariants() const { check_rules(broken_rule()); }
#include "base/check.h"

namespace quire {

// An invariant: its condition, its description, and its position in the code.
struct Rule {
  const char* file;
  int line;
  const char* condition;
  const char* text;
};

// Stops the program unless `broken` is null.
inline void check_rules(const Rule* broken) {
  if (broken != nullptr) [[unlikely]]
    check_failed(broken->file, broken->line, broken->condition, broken->text);
}

}  // namespace quire

// Returns the rule from the enclosing function if `condition` is false. For functions that return the first broken rule.
#define QUIRE_RULE(condition, text)                                                     \
  do {                                                                                  \
    if (!(condition)) [[unlikely]] {                                                    \
      static constexpr ::quire::Rule kRule = {__FILE__, __LINE__, #condition, "" text}; \
      return &kRule;                                                                    \
    }                                                                                   \
  } while (false)
