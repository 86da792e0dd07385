#pragma once
// Reads the vision encoder of a model with a GGUF decoder. The encoder is a second file, which llama.cpp's converter writes with --mmproj:
// an image encoder and a connector to the decoder's width. Its keys and names are gguf-py's (`clip.*`, `v.*`, `mm.*`). They are translated
// to the keys of a Hugging Face folder, whose readers then read them.
#include <string>
#include <string_view>

#include "format/gguf.h"
#include "quire/base/error.h"
#include "quire/base/image.h"
#include "runtime/model/config/model_config.h"

namespace quire {

struct Mmproj {
  VisionConfig vision;
  ImageInfo pictures;
};

// Reads the file. `decoder` is the file of `config`. Errors, naming the key: `unsupported` (the projector or the decoder is not supported),
// `corrupt`.
Result<Mmproj> read_mmproj(const GgufFile& file, const GgufFile& decoder, const ModelConfig& config);

// Returns the name that a Hugging Face folder gives a tensor of an encoder file; other names are returned unchanged. Some tensors are parts
// of one tensor in Qwen's folders. These parts are named attn.q, attn.k and attn.v of a block, and patch_embed.0 and .1, one per frame.
std::string folder_name_of(const GgufTensor& tensor, const VisionConfig& vision);

}  // namespace quire
