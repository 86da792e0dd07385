#pragma once
// What the bits of keys and values depend on besides the tokens, for blocks that outlive the program.
#include <string_view>

#include "base/digest.h"
#include "quire/base/error.h"
#include "quire/base/kv_layout.h"
#include "quire/base/options.h"
#include "runtime/model/weights/model_file.h"

namespace quire {

// How weights are held and met by what they multiply.
struct Arithmetic {
  ActivationMode activations = ActivationMode::int16;
  WeightQuantisation quantise = WeightQuantisation::none;
};

// A digest of all bytes of the model's files (of safetensors folders, of its weights and config.json), of how a block lies in memory, of
// the arithmetic, and of `naming`: how blocks get their names. Reads the files. Errors: `io`.
Result<Sha256Digest> kv_fingerprint(const ModelFile& model, const KvLayout& layout, const Arithmetic& arithmetic, std::string_view naming);

}  // namespace quire
