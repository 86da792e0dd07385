#pragma once
// The vision encoder of a model with a GGUF decoder. It is a second file, with an encoder of images and a connector to the decoder's width,
// as llama.cpp's converter writes it with --mmproj. Its keys and names are gguf-py's (`clip.*`, `v.*`, `mm.*`). They are translated to a
// folder's keys and read by the folder's readers.
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

// `decoder` is the file that `config` was read from. Errors: `unsupported` (a projector or decoder that is not supported), `corrupt`,
// naming the key.
Result<Mmproj> read_mmproj(const GgufFile& file, const GgufFile& decoder, const ModelConfig& config);

// Returns the name that a folder has for a tensor of such a file; other names stay as they are. Some tensors are parts of a tensor in
// Qwen's folders. They are named attn.q, attn.k and attn.v of a block, and patch_embed.0 and .1, one per frame.
std::string folder_name_of(const GgufTensor& tensor, const VisionConfig& vision);

}  // namespace quire
