// quire cache: lists the blocks in a disk tier's folder, verifies their checksums, or removes them. The folder is locked meanwhile, so that
// no server can use it. Only `drop` changes the folder, and requires --yes.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <ranges>
#include <span>

#include "base/format_bytes.h"
#include "cli/command.h"
#include "cli/progress_bar.h"
#include "quire/cache_folder.h"

namespace quire {
namespace {

constexpr int kFoundCorrupted = 1;

struct CacheFlags {
  std::string folder;
  std::size_t limit = 100;
  bool yes = false;
};

std::string name_of(const CachedBlock& block) {
  return fmt::format("{:02x}", fmt::join(block.name.hash, ""));
}

void print_stat(const CacheFolderInfo& info) {
  fmt::print("fingerprint      {}\n", info.fingerprint);
  fmt::print("opened           {} times\n", info.num_openings);
  fmt::print("slots            {} of {}, {} hold blocks\n", info.num_places, format_bytes(info.place_bytes), info.num_blocks);
  fmt::print("blocks           {}\n", format_bytes(info.block_bytes));
  fmt::print("on disk          {}, reserved even for free slots\n", format_bytes(info.disk_bytes));
  if (info.num_damaged_entries > 0) fmt::print("corrupted        {} table entries, which are ignored\n", info.num_damaged_entries);
}

void print_blocks(const std::vector<CachedBlock>& blocks, std::size_t limit) {
  fmt::print("{:>9} {:>11} {:>5}  {}\n", "slot", "bytes", "group", "block hash");
  const std::size_t count = limit == 0 ? blocks.size() : std::min(limit, blocks.size());
  for (const CachedBlock& block : std::span(blocks).last(count) | std::views::reverse)
    fmt::print("{:>9} {:>11} {:>5}  {}\n", block.place, block.bytes, block.name.group, name_of(block));
  if (count < blocks.size()) fmt::print("and {} older blocks: --limit 0 lists all\n", blocks.size() - count);
}

Result<int> verify(CacheFolder& folder) {
  const auto bar = [](double done) { show_progress("Reading the blocks", done); };
  std::vector<CachedBlock> bad;
  if (Result<void> read = folder.verify(isatty(STDERR_FILENO) != 0 ? bar : std::function<void(double)>(), bad); !read)
    return std::unexpected(read.error());
  for (const CachedBlock& block : bad) fmt::print("slot {}: {} does not match its checksum\n", block.place, name_of(block));
  fmt::print("{} of {} blocks match their checksums", folder.blocks().size() - bad.size(), folder.blocks().size());
  if (folder.info().num_damaged_entries > 0) fmt::print(", {} table entries are corrupted", folder.info().num_damaged_entries);
  fmt::print("\n");
  const bool is_good = bad.empty() && folder.info().num_damaged_entries == 0;
  if (!is_good) fmt::print("A server ignores corrupted blocks and overwrites them later.\n");
  return is_good ? 0 : kFoundCorrupted;
}

Result<int> drop(CacheFolder& folder, const CacheFlags& flags) {
  if (!flags.yes)
    return fail(ErrorCode::invalid_argument, "--yes",
                fmt::format("is required: {} blocks in '{}' would be erased", folder.blocks().size(), flags.folder),
                "add --yes to erase them");
  const std::uint64_t bytes = folder.info().disk_bytes;
  if (Result<void> dropped = folder.drop(); !dropped) return std::unexpected(dropped.error());
  fmt::print("{} of disk space were freed\n", format_bytes(bytes));
  return 0;
}

}  // namespace

Command add_cache_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("cache", "Inspect, verify or erase a folder of quire serve --kv-disk while no server uses it");
  auto flags = std::make_shared<CacheFlags>();
  const auto add_verb = [&](const char* name, const char* what) {
    CLI::App* verb = command->add_subcommand(name, what);
    verb->add_option("folder", flags->folder, "Folder of the disk tier, as given to quire serve --kv-disk")->required()->type_name("DIR");
    return verb;
  };
  add_verb("stat", "Print how many blocks the folder holds, their size, and the model and layout that they belong to");
  add_verb("ls", "List the blocks, the newest first")
      ->add_option("--limit", flags->limit, "Number of blocks to list; 0: all")
      ->capture_default_str();
  add_verb("verify", "Read every block and compare it with its checksum; exits with 1 if a block is corrupted");
  CLI::App* remove = add_verb("drop", "Erase all blocks and free their disk space; requires --yes");
  remove->add_flag("--yes", flags->yes, "Erase the blocks. Without this flag the command reports what it would erase");
  remove->footer("Example:\n  quire cache drop /var/cache/quire --yes");
  command->require_subcommand(1);
  command->footer(
      "Example:\n  quire serve model.gguf --kv-disk /var/cache/quire   (and after it has stopped)\n  quire cache verify /var/cache/quire");
  return {command, [flags, command]() -> Result<int> {
            auto folder = CacheFolder::open(flags->folder);
            if (!folder) return std::unexpected(folder.error());
            const std::string verb = command->get_subcommands().front()->get_name();
            if (verb == "verify") return verify(**folder);
            if (verb == "drop") return drop(**folder, *flags);
            verb == "stat" ? print_stat((*folder)->info()) : print_blocks((*folder)->blocks(), flags->limit);
            return 0;
          }};
}

}  // namespace quire
