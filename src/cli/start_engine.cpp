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
  auto engine = builder.build(isatty(STDERR_FILENO) != 0 ? &show_loading : nullptr);
  if (!engine) return std::unexpected(std::move(engine.error()));
  return engine;
}

}  // namespace quire
