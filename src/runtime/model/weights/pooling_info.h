#pragma once
// Reads from a model's files how it makes vectors of texts.
#include <string>

#include "format/gguf.h"
#include "quire/base/pooling.h"

namespace quire {

// Files of sentence-transformers may lie next to a GGUF file or in a Hugging Face folder; then they decide. Values that cannot be read or
// are not implemented are no error: PoolingInfo::unsupported is the reason that requests for vectors receive.
PoolingInfo pooling_info(const GgufFile& file, const std::string& path);
PoolingInfo pooling_info(const std::string& folder);

}  // namespace quire
