#pragma once
// Replaces option names in errors by the flags that the user wrote.
#include "quire/base/error.h"

namespace quire {

// Returns `error` with the flag in place of the engine's or the server's option. Other field names stay unchanged.
Error as_flag(Error error);

}  // namespace quire
