#pragma once
// Reads from a model's files how the model computes embeddings of texts.
#include <string>

#include "format/gguf.h"
#include "quire/base/pooling.h"

namespace quire {

// Return the pooling settings. Files of sentence-transformers next to a GGUF file or in a Hugging Face folder take precedence. Values that
// cannot be read or are not implemented are not an error: PoolingInfo::unsupported is the reason with which pooling requests are refused.
PoolingInfo pooling_info(const GgufFile& file, const std::string& path);
PoolingInfo pooling_info(const std::string& folder);

}  // namespace quire
