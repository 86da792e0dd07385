// Embeds the library: asks for a model that does not exist and expects an error that says so.
#include <cstdio>

#include "../support/toy_tier.h"  // a connector and transport that the engine's tests serve with: installed headers are all it needs
#include "quire/engine.h"

int main() {
  const auto info = quire::inspect_model("/nonexistent/model.gguf");
  if (info.has_value() || info.error().to_string().find("/nonexistent/model.gguf") == std::string::npos) {
    std::fputs("inspect_model did not name the missing file\n", stderr);
    return 1;
  }
  std::puts(info.error().to_string().c_str());
  return 0;
}
