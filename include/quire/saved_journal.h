#pragma once
// The result of saving the last minutes of a journal (Engine::save_journal(), CoreJournal::save()).
#include <cstdint>
#include <functional>
#include <string>

#include "quire/base/error.h"

namespace quire {

// A journal file saved from memory.
struct SavedJournal {
  std::string path;
  std::uint64_t num_bytes = 0;
  std::uint64_t num_steps = 0;
  double covered_s = 0.0;  // engine time from the first plan in the file to the last
};

// Receives the result. Called once: on the journal's thread, or on the caller's thread for an error that is found immediately.
using JournalSaveCallback = std::function<void(Result<SavedJournal>)>;

}  // namespace quire
