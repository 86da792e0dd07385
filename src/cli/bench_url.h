#pragma once
// quire bench --url: sends load to an OpenAI-compatible server over HTTP and measures its answers. Used on the main thread.
#include "cli/bench_url_flags.h"
#include "quire/base/error.h"

namespace quire {

// Checks the server, runs the load and prints the results. Ctrl-C ends the load; the results so far are printed. Returns the exit status: 1
// if a request failed or has no result.
Result<int> bench_url(const BenchUrlFlags& flags);

}  // namespace quire
