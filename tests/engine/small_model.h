#pragma once
// The description of a small model without weights, for tests of what an engine makes of its options.
#include "quire/engine.h"

namespace quire {

// A block of 16 tokens has 2048 bytes: keys and values in 2 layers with 2 heads of 8 elements of 2 bytes.
inline ModelInfo small_model() {
  ModelInfo model;
  model.name = "small";
  model.num_layers = 2;
  model.num_kv_heads = 2;
  model.head_dim = 8;
  model.vocab_size = 100;
  model.context_length = 512;
  return model;
}

}  // namespace quire
