#pragma once
// The last minutes of a journal, as they were saved (Engine::save_journal(), CoreJournal::save()).
#include <cstdint>
#include <functional>
#include <string>

#include "quire/base/error.h"

namespace quire {

struct SavedJournal {
  std::string path;
  std::uint64_t num_bytes = 0;
  std::uint64_t num_steps = 0;
  double covered_s = 0.0;  // from its first plan to its last, by the engine's clock
};

// Called once, on a thread of the journal's; what is refused at once, on the caller's (Engine::save_journal()).
using JournalSaveAnswer = std::function<void(Result<SavedJournal>)>;

}  // namespace quire
