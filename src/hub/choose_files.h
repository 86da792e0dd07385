#pragma once
// Chooses the files of a repository that quire needs: one quantization of a GGUF repository, or the weights, config and tokenizer of a
// repository with safetensors. The same rules find a model in a listing of the hub and in a folder of the cache.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hub/model_name.h"
#include "quire/base/error.h"

namespace quire {

// A file of a repository.
struct HubFile {
  std::string path;        // relative to the repository, with '/'
  std::uint64_t size = 0;  // in bytes
  std::string digest{};    // SHA-256 with is_lfs, else the SHA-1 of git's blob; in hexadecimal. Empty in listings of the cache
  bool is_lfs = false;
};

// One model of a GGUF repository, in one file or in several parts.
struct GgufVariant {
  std::string quant;           // in upper case; empty if the file's name contains no quantization
  std::string name;            // the path without the number of the part, as "Q8_0/Model-Q8_0.gguf"
  std::vector<HubFile> parts;  // in the order of their numbers
  std::uint64_t num_parts = 1;

  [[nodiscard]] bool is_complete() const { return parts.size() == num_parts; }
  [[nodiscard]] std::uint64_t num_bytes() const;
};

struct ChosenFiles {
  std::vector<HubFile> files;                 // the weights are last
  std::string model;                          // the GGUF file to open; empty: the folder of the files
  std::string quant;                          // empty for safetensors, or if it is not known
  std::vector<std::string> other_quants{};    // further quantizations in the repository
  std::vector<std::string> image_encoders{};  // GGUF files for --mmproj
  bool has_tokenizer = true;

  [[nodiscard]] std::uint64_t num_bytes() const;
};

// Returns the quantization in a file's name in upper case, as "Q4_K_M" or "UD-Q4_K_XL"; empty if the name has no quantization.
[[nodiscard]] std::string quant_in(std::string_view path);

// Returns the models in GGUF files by name, including incomplete ones. Image encoders and importance matrices are not models.
[[nodiscard]] std::vector<GgufVariant> gguf_variants(std::span<const HubFile> listing);

// Without a variant: GGUF before safetensors, Q4_K_M before other quantizations. Errors have the field MODEL: `not_found` (no such
// quantization, or parts are missing), `invalid_argument` (several files match), `unsupported` (the repository contains no model for
// quire).
Result<ChosenFiles> choose_files(std::span<const HubFile> listing, const HubName& name);

}  // namespace quire
