#pragma once
// Rules of a structure, written once for two readers: who stops the program where one is broken, and who only wants to know which.
//
//   const Rule* T::broken_rule() const { QUIRE_RULE(a == b, "what is counted"); return nullptr; }
//   void T::check_invariants() const { check_rules(broken_rule()); }
#include "base/check.h"

namespace quire {

struct Rule {
  const char* file;
  int line;
  const char* condition;
  const char* text;
};

// Null: none is broken.
inline void check_rules(const Rule* broken) {
  if (broken != nullptr) [[unlikely]]
    check_failed(broken->file, broken->line, broken->condition, broken->text);
}

}  // namespace quire

// In a function that returns the first rule that does not hold.
#define QUIRE_RULE(condition, text)                                                     \
  do {                                                                                  \
    if (!(condition)) [[unlikely]] {                                                    \
      static constexpr ::quire::Rule kRule = {__FILE__, __LINE__, #condition, "" text}; \
      return &kRule;                                                                    \
    }                                                                                   \
  } while (false)
