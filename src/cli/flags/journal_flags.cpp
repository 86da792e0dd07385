#include "cli/flags/journal_flags.h"

#include "cli/flags/engine_flags.h"

namespace quire {

void add_journal_flags(CLI::App& app, JournalOptions& journal) {
  app.add_option("--journal", journal.folder,
                 "Record in a new file in this folder what the scheduler is asked, prompt tokens included, and a digest of each decision; "
                 "quire replay runs it again")
      ->type_name("DIR");
  app.add_option("--journal-max-bytes", journal.max_bytes, "Of all journals in the folder; the oldest go first")
      ->transform(bytes_flag())
      ->default_str("1GiB");
  app.add_option("--journal-memory", journal.memory_bytes,
                 "For the last minutes of the same in memory, which POST /v1/journal/save writes to a file; 0: none are kept")
      ->transform(bytes_flag())
      ->default_str("32MiB");
  app.add_flag("--journal-tokens,!--no-journal-tokens", journal.tokens,
               "What prompts and answers say is in it (default); without, it can be run again all the same");
}

}  // namespace quire
