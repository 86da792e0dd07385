// quire cache: what a disk tier's folder holds, whether it is still what was stored, and an end of it.
// The folder is locked while it runs, so no server can use it meanwhile. Only `drop` changes anything, and wants --yes.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <ranges>
#include <span>

#include "cli/command.h"
#include "cli/flags/engine_flags.h"
#include "cli/progress_bar.h"
#include "quire/cache_folder.h"

namespace quire {
namespace {

constexpr int kFoundBad = 1;

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
  fmt::print("places           {} of {}, {} hold blocks\n", info.num_places, format_bytes(info.place_bytes), info.num_blocks);
  fmt::print("blocks           {}\n", format_bytes(info.block_bytes));
  fmt::print("on disk          {}, which the tier keeps whatever it holds\n", format_bytes(info.disk_bytes));
  if (info.num_damaged_entries > 0) fmt::print("damaged          {} entries of the table, which name nothing\n", info.num_damaged_entries);
}

void print_blocks(const std::vector<CachedBlock>& blocks, std::size_t limit) {
  fmt::print("{:>9} {:>11} {:>5}  {}\n", "place", "bytes", "group", "name");
  const std::size_t count = limit == 0 ? blocks.size() : std::min(limit, blocks.size());
  for (const CachedBlock& block : std::span(blocks).last(count) | std::views::reverse)
    fmt::print("{:>9} {:>11} {:>5}  {}\n", block.place, block.bytes, block.name.group, name_of(block));
  if (count < blocks.size()) fmt::print("and {} that were stored earlier: --limit 0 shows all\n", blocks.size() - count);
}

Result<int> verify(CacheFolder& folder) {
  const auto bar = [](double done) { show_progress("Reading the blocks", done); };
  std::vector<CachedBlock> bad;
  if (Result<void> read = folder.verify(isatty(STDERR_FILENO) != 0 ? bar : std::function<void(double)>(), bad); !read)
    return std::unexpected(read.error());
  for (const CachedBlock& block : bad) fmt::print("place {}: {} is not what was stored\n", block.place, name_of(block));
  fmt::print("{} of {} blocks are what was stored", folder.blocks().size() - bad.size(), folder.blocks().size());
  if (folder.info().num_damaged_entries > 0) fmt::print(", and {} entries of the table are damaged", folder.info().num_damaged_entries);
  fmt::print("\n");
  const bool is_good = bad.empty() && folder.info().num_damaged_entries == 0;
  if (!is_good) fmt::print("A server takes none of these for a hit, and stores over them in time.\n");
  return is_good ? 0 : kFoundBad;
}

Result<int> drop(CacheFolder& folder, const CacheFlags& flags) {
  if (!flags.yes)
    return fail(ErrorCode::invalid_argument, "--yes",
                fmt::format("is missing: {} blocks in '{}' would be gone", folder.blocks().size(), flags.folder),
                "give it if that is meant");
  const std::uint64_t bytes = folder.info().disk_bytes;
  if (Result<void> dropped = folder.drop(); !dropped) return std::unexpected(dropped.error());
  fmt::print("{} are free again\n", format_bytes(bytes));
  return 0;
}

}  // namespace

Command add_cache_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("cache", "What a folder of quire serve --kv-disk holds, while nothing serves from it");
  auto flags = std::make_shared<CacheFlags>();
  const auto add_verb = [&](const char* name, const char* what) {
    CLI::App* verb = command->add_subcommand(name, what);
    verb->add_option("folder", flags->folder, "As quire serve --kv-disk was given it")->required()->type_name("DIR");
    return verb;
  };
  add_verb("stat", "How much it holds, and of what");
  add_verb("ls", "Its blocks, those that were stored last first")
      ->add_option("--limit", flags->limit, "Show at most so many; 0: all")
      ->capture_default_str();
  add_verb("verify", "Read every block and compare it with its checksum; exits with 1 if one is not what was stored");
  add_verb("drop", "Remove it")->add_flag("--yes", flags->yes, "It is meant");
  command->require_subcommand(1);
  command->footer(
      "Example:\n  quire serve model.gguf --kv-disk /var/cache/quire   (and when it has ended)\n  quire cache verify /var/cache/quire");
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
