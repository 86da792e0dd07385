#pragma once
// The pictures of a rendered chat: the text that stands for them, their places among the tokens, and what the encoder is given.
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "media/picture_processor.h"
#include "quire/base/error.h"
#include "quire/base/ids.h"
#include "quire/base/picture.h"
#include "server/request/completion_request.h"

namespace quire {

// What the pictures of all requests take until they are encoded. Any thread.
class PictureMemory {
 public:
  static constexpr std::uint64_t kMostBytes = std::uint64_t{512} << 20U;

  // Null: there is no room.
  [[nodiscard]] std::shared_ptr<const void> take(std::uint64_t bytes);

 private:
  // What is prepared may outlive the server in the engine.
  std::shared_ptr<std::atomic<std::uint64_t>> taken_ = std::make_shared<std::atomic<std::uint64_t>>(0);
};

// Made of the files' heads alone; outlived by what it was made of. Any thread.
class PicturePrompt {
 public:
  // Errors name the part of the message.
  // `processor`: of the info; null where there are no pictures.
  static Result<PicturePrompt> create(std::span<const ChatPicture> pictures, const PictureInfo& info, const PictureProcessor* processor);

  [[nodiscard]] bool any() const { return !pictures_.empty(); }
  // With the text of each picture in its place. Errors: there are more or fewer places than pictures.
  [[nodiscard]] Result<std::string> expand(std::string_view rendered) const;
  // Decodes and cuts them. `salt`: who has another one shares no embeddings. Errors: of files; `overloaded`.
  [[nodiscard]] Result<std::vector<PromptPicture>> make(std::span<const TokenId> tokens, std::string_view salt,
                                                        PictureMemory& memory) const;

 private:
  PicturePrompt(std::span<const ChatPicture> pictures, const PictureInfo& info, const PictureProcessor* processor)
      : pictures_(pictures), info_(info), processor_(processor) {}
  [[nodiscard]] Result<PlaceholderRange> place(std::span<const TokenId> tokens, std::size_t number, std::size_t& at) const;

  std::span<const ChatPicture> pictures_;
  const PictureInfo& info_;
  const PictureProcessor* processor_;
  std::vector<PictureShape> shapes_;  // [picture]
};

// Whether a template goes through the parts of a message's content, and so wants them apart.
[[nodiscard]] bool wants_parts(std::string_view chat_template);
// A message whose content is text is one part then.
void put_into_parts(boost::json::array& messages);

}  // namespace quire
