// Reads any text as answers of the hub. Chosen files have paths and digests that are safe names of files, or there is an error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "fuzz/subject.h"
#include "hub/choose_files.h"
#include "hub/hub_listing.h"

static quire::test::FuzzSubject subject("a chosen model");

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto commit = quire::parse_commit(text);
  QUIRE_CHECK(!commit || quire::is_hex(*commit, 40), "a commit has 40 hexadecimal digits");
  QUIRE_CHECK(quire::next_page(text).size() <= size, "the next page is a part of the header");
  if (const auto names = quire::parse_names(text))
    for (const std::string& found : *names) QUIRE_CHECK(quire::is_repo_name(found, false), "a found name is valid");
  const auto name = quire::parse_model_name(text, "https://huggingface.co");
  QUIRE_CHECK(name || !name.error().message.empty(), "an error has a message");
  const auto listing = quire::parse_listing(text);
  if (!listing) {
    QUIRE_CHECK(!listing.error().message.empty(), "an error has a message");
    return 0;
  }
  for (const quire::HubFile& file : *listing) {
    QUIRE_CHECK(quire::is_safe_path(file.path), "a listed path stays in its folder");
    QUIRE_CHECK(quire::is_hex(file.digest, file.is_lfs ? 64 : 40), "a digest is a safe name of a file");
  }
  for (const char* variant : {"", "Q4_K_M", "m.gguf"}) {
    const auto chosen = quire::choose_files(*listing, {"org/repo", variant});
    QUIRE_CHECK(chosen ? !chosen->files.empty() : !chosen.error().message.empty(), "a choice has files");
    if (chosen) subject.reached();
  }
  return 0;
}
