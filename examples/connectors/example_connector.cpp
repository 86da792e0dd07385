// Stores each block as a file in a folder (shared_storage_path), like vLLM's ExampleConnector. Any process with the same model, block size
// and hash algorithm finds the files. It is an example, not for production: it never deletes a file, and does not check the model of a
// file.
#include "example_connector.h"

#include <filesystem>
#include <fstream>

namespace examples {
namespace {

class ExampleConnector final : public PrefixConnector, public CopyingTransport {
 public:
  ExampleConnector(std::filesystem::path folder, std::uint32_t block_size) : PrefixConnector(block_size), folder_(std::move(folder)) {}

  // Returns false, because other processes use the folder, too.
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

  // Returns the slot number of a block hash for transfers: its index in `names_`, in order of first use.
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
  // The file gets its final name only after it is complete.
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
  std::mutex mutex_;  // the connector and the transport run on different threads
  std::map<std::string, std::uint64_t> places_;
  std::vector<std::string> names_;
};

}  // namespace

quire::Result<quire::ConnectorAndTransport> make_example(const quire::ConnectorParameters& parameters,
                                                         const quire::ConnectorContext& context) {
  quire::ParameterReader reader(parameters);
  const std::filesystem::path folder = reader.text("shared_storage_path", "/tmp");
  if (auto read = reader.finish(); !read) return std::unexpected(read.error());
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return quire::fail(quire::ErrorCode::io, "shared_storage_path", folder.string() + " cannot be created: " + error.message());
  const auto both = std::make_shared<ExampleConnector>(folder, context.config->block_size);
  return quire::ConnectorAndTransport{.connector = both, .transport = both};
}

}  // namespace examples
