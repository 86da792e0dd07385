#pragma once
// The active mutant, and the mutants that were reached. Precompiled into every file of the mutated build.
namespace quire_mutants {

extern int alive;               // -1: none
extern unsigned char* reached;  // by mutant

inline bool on(int mutant) {
  reached[mutant] = 1;
  return mutant == alive;
}

}  // namespace quire_mutants

#define QUIRE_MUTANT(number) ::quire_mutants::on(number)
