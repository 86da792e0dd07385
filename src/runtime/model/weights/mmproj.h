#pragma once
// What sees of a model whose decoder is a GGUF file: a second file, of an encoder of pictures and what makes embeddings of the decoder's
// width, as llama.cpp's converter writes it with --mmproj. Its keys and names are gguf-py's (`clip.*`, `v.*`, `mm.*`). What they say is
// read as if it stood in a folder, by the same readers.
#include <string>
#include <string_view>

#include "format/gguf.h"
#include "quire/base/error.h"
#include "quire/base/picture.h"
#include "runtime/model/config/model_config.h"

namespace quire {

struct Mmproj {
  VisionConfig vision;
  PictureInfo pictures;
};

// Of a decoder and the file that it was read from. Errors: `unsupported` (a projector or decoder that is not served so), `corrupt`, naming
// the key.
Result<Mmproj> read_mmproj(const GgufFile& file, const GgufFile& decoder, const ModelConfig& config);

// The name in a folder of a tensor of such a file; others stay as they are. Parts of Qwen's that folders keep in one tensor: attn.q, attn.k
// and attn.v of a block, and patch_embed.0 and .1, a frame's each.
std::string folder_name_of(const GgufTensor& tensor, const VisionConfig& vision);

}  // namespace quire
