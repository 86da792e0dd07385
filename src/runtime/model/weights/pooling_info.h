#pragma once
// What a model's files say about vectors of texts.
#include <string>

#include "format/gguf.h"
#include "quire/base/pooling.h"

namespace quire {

// Beside a GGUF file lie perhaps, and in a Hugging Face folder, the files of sentence-transformers; then they decide. What cannot be read
// or done is no error: PoolingInfo::unsupported tells it to who wants vectors.
PoolingInfo pooling_info(const GgufFile& file, const std::string& path);
PoolingInfo pooling_info(const std::string& folder);

}  // namespace quire
