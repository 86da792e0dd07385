// Parses replies with hiredis' reader, without hiredis' contexts: the asynchronous context aborts the program when a store sends an
// unexpected reply, and no context limits the memory for the reply of a store. Only the thread of a `RemoteConnectionPool`
// (remote_connection_pool.h) uses a connection; the pool decides what to do after a loss. The functions neither wait nor throw.
#include "runtime/remote/remote_connection.h"

#include <fmt/format.h>
#include <hiredis/hiredis.h>

#include <array>
#include <cstdlib>
#include <deque>
#include <utility>
#include <vector>

#include "base/check.h"

namespace quire {
namespace {

constexpr std::size_t kReadAtOnce = std::size_t{256} << 10U;

// Refuses list replies without allocating memory, because no command of this client has a list reply. The type of the count differs between
// versions of hiredis.
template <class Count>
void* refuse_list(const redisReadTask* /*task*/, Count /*num_elements*/) {
  return nullptr;
}

struct FreeReader {
  void operator()(redisReader* reader) const { redisReaderFree(reader); }
};
struct FreeReply {
  void operator()(redisReply* reply) const { freeReplyObject(reply); }
};
struct FreeCommand {
  void operator()(char* command) const { redisFreeCommand(command); }
};

RemoteReply reply_of(redisReply& reply) {
  const std::string_view text = reply.str == nullptr ? std::string_view() : std::string_view(reply.str, reply.len);
  switch (reply.type) {
    case REDIS_REPLY_NIL:
      return {.kind = RemoteReplyKind::nil};
    case REDIS_REPLY_STATUS:
      return {.kind = RemoteReplyKind::status, .text = text};
    case REDIS_REPLY_INTEGER:
      return {.kind = RemoteReplyKind::integer, .integer = reply.integer};
    case REDIS_REPLY_STRING:
      return {.kind = RemoteReplyKind::bytes, .bytes = std::as_writable_bytes(std::span(reply.str, reply.len))};
    case REDIS_REPLY_ERROR:
      return {.kind = RemoteReplyKind::error, .text = text};
    default:
      return {.kind = RemoteReplyKind::error, .text = "the store sent a reply of an unexpected type"};
  }
}

}  // namespace

Result<void> check_remote_client() {
  return {};
}

struct RemoteConnection::State {
  State(const RemoteAddress& address, std::shared_ptr<const NetTls> tls, std::uint64_t most)
      : stream(address, std::move(tls)), max_reply_bytes(most), reader(redisReaderCreate()), buffer(kReadAtOnce) {
    QUIRE_CHECK(reader != nullptr, "allocation of the reply reader succeeds");
    functions = *reader->fn;
    functions.createArray = refuse_list;
    reader->fn = &functions;
    reader->maxbuf = 0;  // keeps the reader's buffer between replies
  }

  void lose(std::string reason) {
    if (why.empty()) why = std::move(reason);
    is_lost = true;
  }

  void send(std::span<const std::string> words) {
    std::vector<const char*> begins;
    std::vector<std::size_t> sizes;
    begins.reserve(words.size());
    sizes.reserve(words.size());
    for (const std::string& word : words) {
      begins.push_back(word.data());
      sizes.push_back(word.size());
    }
    char* command = nullptr;
    const long long size = redisFormatCommandArgv(&command, static_cast<int>(words.size()), begins.data(), sizes.data());
    QUIRE_CHECK(size > 0, "allocation of the command succeeds");
    output.push_back({.command = std::unique_ptr<char, FreeCommand>(command), .size = static_cast<std::size_t>(size)});
  }

  // Sends the login commands before all other commands. next() handles their replies.
  void send_handshake(const RemoteAddress& address) {
    const auto say = [this](std::vector<std::string> words) {
      send(words);
      ++num_handshake_replies;
    };
    if (!address.password.empty() && address.user.empty()) say({"AUTH", address.password});
    if (!address.password.empty() && !address.user.empty()) say({"AUTH", address.user, address.password});
    if (address.database != 0) say({"SELECT", std::to_string(address.database)});
  }

  bool write_some() {
    while (!output.empty()) {
      const auto rest = std::as_bytes(std::span(output.front().command.get(), output.front().size)).subspan(num_written);
      const std::ptrdiff_t written = stream.write(rest);
      if (written < 0) return false;
      if (written == 0) return true;
      num_written += static_cast<std::size_t>(written);
      if (num_written < output.front().size) continue;
      output.pop_front();
      num_written = 0;
    }
    return true;
  }

  struct Output {
    std::unique_ptr<char, FreeCommand> command;
    std::size_t size;
  };

  NetStream stream;
  const std::uint64_t max_reply_bytes;
  redisReplyObjectFunctions functions{};
  std::unique_ptr<redisReader, FreeReader> reader;
  std::unique_ptr<redisReply, FreeReply> reply;  // the last reply
  std::vector<std::byte> buffer;
  std::deque<Output> output;
  std::size_t num_written = 0;            // bytes of the first output
  std::size_t num_handshake_replies = 0;  // login commands without a reply
  bool is_lost = false, has_opened = false;
  std::string why;
};

RemoteConnection::RemoteConnection(const RemoteAddress& address, std::shared_ptr<const NetTls> tls, std::uint64_t max_reply_bytes)
    : state_(std::make_unique<State>(address, std::move(tls), max_reply_bytes)) {
  state_->send_handshake(address);
}

RemoteConnection::~RemoteConnection() = default;

void RemoteConnection::send(std::span<const std::string> words) {
  state_->send(words);
}

// Reads once per call, so that received replies are taken before more bytes are buffered.
bool RemoteConnection::advance() {
  State& state = *state_;
  if (state.is_lost) return false;
  switch (state.stream.advance()) {
    case NetStream::State::opening:
      return true;
    case NetStream::State::lost:
      state.lose(state.stream.lost_reason());
      return false;
    case NetStream::State::open:
      state.has_opened = true;
  }
  std::ptrdiff_t num_read = 0;
  if (state.write_some()) num_read = state.stream.read(state.buffer);
  if (num_read > 0 && redisReaderFeed(state.reader.get(), reinterpret_cast<const char*>(state.buffer.data()),
                                      static_cast<std::size_t>(num_read)) != REDIS_OK)
    state.lose("the store sent a reply that could not be parsed");
  if (state.stream.advance() == NetStream::State::lost) state.lose(state.stream.lost_reason());
  return !state.is_lost;
}

std::optional<RemoteReply> RemoteConnection::next() {
  State& state = *state_;
  for (;;) {
    void* taken = nullptr;
    if (state.reader->err != 0 || redisReaderGetReply(state.reader.get(), &taken) != REDIS_OK) {
      state.lose(fmt::format("the store sent invalid RESP: {}", state.reader->errstr));
      return std::nullopt;
    }
    state.reply.reset(static_cast<redisReply*>(taken));
    if (state.reply == nullptr) {
      if (state.reader->len - state.reader->pos > state.max_reply_bytes) state.lose("the store sent a reply that is longer than any block");
      return std::nullopt;
    }
    const RemoteReply reply = reply_of(*state.reply);
    if (state.num_handshake_replies == 0) return reply;
    --state.num_handshake_replies;
    if (reply.kind == RemoteReplyKind::error) {
      state.lose(std::string(reply.text));
      return std::nullopt;
    }
  }
}

bool RemoteConnection::is_lost() const {
  return state_->is_lost;
}

bool RemoteConnection::has_opened() const {
  return state_->has_opened;
}

const std::string& RemoteConnection::lost_reason() const {
  return state_->why;
}

int RemoteConnection::descriptor() const {
  return state_->stream.descriptor();
}

short RemoteConnection::events() const {
  return state_->stream.events(!state_->output.empty());
}

}  // namespace quire
