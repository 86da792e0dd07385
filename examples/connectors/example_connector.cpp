// Like vLLM's ExampleConnector: a file per block in a folder (shared_storage_path), found again by any process with the same model, block
// size and hash of names. To read, not to serve from: nothing is ever deleted, and nothing says whose model a file is of.
#include "example_connector.h"

#include <filesystem>
#include <fstream>

namespace examples {
namespace {

class ExampleConnector final : public PrefixConnector, public CopyingTransport {
 public:
  ExampleConnector(std::filesystem::path folder, std::uint32_t block_size) : PrefixConnector(block_size), folder_(std::move(folder)) {}

  // What is in the folder belongs to others, too.
  bool reset() override { return false; }

 private:
  std::filesystem::path path_of(const std::string& name) const {
    std::string digits;
    for (const unsigned char byte : name)
      for (const int digit : {byte >> 4, byte & 15}) digits += "0123456789abcdef"[digit];
    return folder_ / (digits + ".kv");
  }
  std::optional<std::uint64_t> find(const std::string& name) override {
    if (!std::filesystem::exists(path_of(name))) return std::nullopt;
    return place_of(name);
  }
  std::optional<std::uint64_t> reserve(const std::string& name) override {
    if (find(name)) return std::nullopt;
    return place_of(name);
  }
  void stored(const std::string& /*name*/, bool /*is_good*/) override {}
  void forget(const std::string& name) override { std::filesystem::remove(path_of(name)); }

  // Transfers carry numbers: those of the names, in the order in which they came up.
  std::uint64_t place_of(const std::string& name) {
    const std::lock_guard lock(mutex_);
    const auto [found, is_new] = places_.try_emplace(name, names_.size());
    if (is_new) names_.push_back(name);
    return found->second;
  }
  std::filesystem::path path_of(std::uint64_t place) {
    const std::lock_guard lock(mutex_);
    return path_of(names_[place]);
  }

  bool load(std::uint64_t place, const Parts& parts) override {
    std::ifstream file(path_of(place), std::ios::binary);
    for (const auto part : parts) file.read(reinterpret_cast<char*>(part.data()), static_cast<std::streamsize>(part.size()));
    return file.good() && file.peek() == std::ifstream::traits_type::eof();
  }
  // Under its name when it is whole.
  bool store(std::uint64_t place, const Parts& parts) override {
    const std::filesystem::path path = path_of(place);
    const std::filesystem::path unfinished = path.string() + ".part";
    std::ofstream file(unfinished, std::ios::binary);
    for (const auto part : parts) file.write(reinterpret_cast<const char*>(part.data()), static_cast<std::streamsize>(part.size()));
    file.close();
    std::error_code error;
    if (!file.fail()) std::filesystem::rename(unfinished, path, error);
    return !file.fail() && !error;
  }

  const std::filesystem::path folder_;
  std::mutex mutex_;  // the two halves are called by different threads
  std::map<std::string, std::uint64_t> places_;
  std::vector<std::string> names_;
};

}  // namespace

quire::Result<quire::ConnectorHalves> make_example(const quire::ConnectorParameters& parameters, const quire::ConnectorContext& context) {
  quire::ParameterReader reader(parameters);
  const std::filesystem::path folder = reader.text("shared_storage_path", "/tmp");
  if (auto read = reader.finish(); !read) return std::unexpected(read.error());
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return quire::fail(quire::ErrorCode::io, "shared_storage_path", folder.string() + " cannot be made: " + error.message());
  const auto both = std::make_shared<ExampleConnector>(folder, context.config->block_size);
  return quire::ConnectorHalves{.connector = both, .transport = both};
}

}  // namespace examples
