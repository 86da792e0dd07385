#pragma once
// Invariants of a data structure, written once for two uses: stop the program if one is broken, or only report which.
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

// For a function that returns the first broken rule: returns the rule if `condition` is false.
#define QUIRE_RULE(condition, text)                                                     \
  do {                                                                                  \
    if (!(condition)) [[unlikely]] {                                                    \
      static constexpr ::quire::Rule kRule = {__FILE__, __LINE__, #condition, "" text}; \
      return &kRule;                                                                    \
    }                                                                                   \
  } while (false)
