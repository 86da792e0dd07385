#pragma once
// Normalizes texts to Unicode's form C, exactly as Hugging Face `tokenizers` does.
#include <string>
#include <string_view>

namespace quire {

// Returns `text` in normalized form. `text` must be valid UTF-8. `tokenizers` uses the tables of Unicode 9, so combining marks from later
// versions keep their position; otherwise the token ids would differ.
[[nodiscard]] std::string normalize_nfc(std::string_view text);

}  // namespace quire
