#include "cli/start_engine.h"

#include <unistd.h>

#include "cli/progress_bar.h"

namespace quire {
namespace {

void show_loading(double done) {
  show_progress("Loading the model", done);
}

}  // namespace

Result<std::unique_ptr<Engine>> start_engine(const EngineBuilder& builder) {
  return builder.build(isatty(STDERR_FILENO) != 0 ? &show_loading : nullptr);
}

}  // namespace quire
