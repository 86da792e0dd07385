#pragma once
// Unicode's normal form C, as Hugging Face `tokenizers` has it.
#include <string>
#include <string_view>

namespace quire {

// `text` must be valid UTF-8. The tables of `tokenizers` are of Unicode 9: combining marks that came later keep their place, as its ids ask
// for.
[[nodiscard]] std::string normalize_nfc(std::string_view text);

}  // namespace quire
