#pragma once
// Limits the recursion over nested values.
#include "text/template/runtime.h"

namespace quire::jinja {

class Runtime::Nesting {
 public:
  // Maximum depth. Functions recurse over nested values, and a template chooses how deeply values are nested.
  static constexpr int kMaxDepth = 128;

  explicit Nesting(Runtime& runtime) : runtime_(runtime) {
    if (++runtime_.nesting_ > kMaxDepth) stop(ErrorCode::too_large, runtime_.line_, "a value is nested too deeply");
  }
  ~Nesting() { --runtime_.nesting_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  Runtime& runtime_;
};

}  // namespace quire::jinja
