#include "cli/build_options.h"

#include <array>

namespace quire {
namespace {

// QUIRE_BUILT_WITHOUT is a list of CMake's names of libraries (cmake/Cli.cmake).
constexpr bool is_included(std::string_view name) {
  return std::string_view(QUIRE_BUILT_WITHOUT).find(name) == std::string_view::npos;
}

constexpr std::array kBuildOptions = {
    BuildOption{"llguidance", "structured output", "", is_included("LLGUIDANCE")},
    BuildOption{"liburing", "io_uring for --kv-disk", "liburing-dev", is_included("URING")},
    BuildOption{"ZeroMQ", "KV events (--kv-events-config)", "libzmq3-dev cppzmq-dev", is_included("ZMQ")},
    BuildOption{"hiredis", "a KV store in Redis (--kv-remote)", "libhiredis-dev", is_included("HIREDIS")},
    BuildOption{"image decoders", "images", "libpng-dev libturbojpeg0-dev libwebp-dev libgif-dev", is_included("PICTURE")},
    BuildOption{"libsndfile and libsoxr", "audio", "libsndfile1-dev libsoxr-dev", is_included("SNDFILE")},
    BuildOption{"zlib", "compressed traces", "zlib1g-dev", is_included("ZLIB")},
    BuildOption{"xxHash", "block hashes of the kind xxhash", "libxxhash-dev", is_included("XXHASH")},
};

}  // namespace

std::span<const BuildOption> build_options() {
  return kBuildOptions;
}

}  // namespace quire
