#pragma once
// Computes the fingerprint of KV blocks that outlive the program: a digest of everything except the tokens that determines the bits of keys
// and values.
#include <string_view>

#include "base/digest.h"
#include "quire/base/error.h"
#include "quire/base/kv_layout.h"
#include "quire/base/options.h"
#include "runtime/model/weights/model_file.h"

namespace quire {

// Format of weights in memory, and format of the activations that are multiplied with them.
struct KvArithmetic {
  ActivationMode activations = ActivationMode::int16;
  WeightQuantisation quantise = WeightQuantisation::none;
};

// Returns a digest of all bytes of the model's files (for safetensors folders: the weights and config.json), the memory layout of a block,
// the arithmetic, and `naming`, which describes how block hashes are computed. Reads the files. Errors: `io`.
Result<Sha256Digest> kv_fingerprint(const ModelFile& model, const KvLayout& layout, const KvArithmetic& arithmetic,
                                    std::string_view naming);

}  // namespace quire
