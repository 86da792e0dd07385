#pragma once
// Splits the reply of a route into the outputs of quire_poll(): the events of a stream, or the whole body, and the choices in each.
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/ids.h"
#include "quire/local_api.h"

namespace quire {

// The error of a reply, in the words of the route.
struct ReplyError {
  unsigned status = 0;  // HTTP status; 200 for an error within a stream
  std::string type, code, field, message;
};

struct ReplyOutput {
  std::string json;  // empty: the reply is not JSON
  std::uint32_t choice = 0;
  std::string text;
  std::vector<TokenId> tokens;
  std::string finish_reason;  // empty: the choice continues
  std::optional<ReplyError> error;
};

// Used by one thread at a time.
class OutputReader {
 public:
  // Takes the next bytes of the reply.
  void feed(LocalReplyPart part);
  // Returns the error if the reply is one; next() returns it too.
  [[nodiscard]] std::optional<ReplyError> refusal() const;
  // Returns the next output, or nullopt if more bytes are needed.
  [[nodiscard]] std::optional<ReplyOutput> next();

 private:
  void read_events(bool is_last);
  void read_lines(bool is_last);
  void read_document(std::string_view text);

  unsigned status_ = 0;
  std::string unread_;
  std::deque<ReplyOutput> outputs_;
};

}  // namespace quire
