// Reads any bytes as the answers of a store in the network, in pieces. Each reply is a valid one, and invalid bytes close the connection.
// No value is ever accepted as a block.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "fuzz/subject.h"
#include "runtime/remote/remote_connection.h"
#include "runtime/remote/remote_value.h"

namespace quire {
namespace {

test::FuzzSubject subject("a whole reply");

constexpr std::uint64_t kMostOfReply = 4096;

class FuzzListener {
 public:
  FuzzListener() : path_("/tmp/quire-remote-fuzz-" + std::to_string(getpid())), descriptor_(socket(AF_UNIX, SOCK_STREAM, 0)) {
    unlink(path_.c_str());
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::ranges::copy(path_, address.sun_path);
    QUIRE_CHECK(bind(descriptor_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 && listen(descriptor_, 8) == 0);
  }
  ~FuzzListener() {
    close(descriptor_);
    unlink(path_.c_str());
  }
  FuzzListener(const FuzzListener&) = delete;
  FuzzListener& operator=(const FuzzListener&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] int take() const { return accept(descriptor_, nullptr, nullptr); }

 private:
  const std::string path_;
  const int descriptor_;
};

void read_replies(RemoteConnection& connection, std::size_t num_sent) {
  static RemoteValueCodec seal(std::array<std::byte, 16>{});
  connection.advance();
  while (const std::optional<RemoteReply> reply = connection.next()) {
    subject.reached();
    QUIRE_CHECK(reply->bytes.size() <= num_sent && reply->text.size() <= num_sent + 64, "more than was sent");
    for (const std::uint64_t bytes : {reply->bytes.size(), std::max(reply->bytes.size(), remote_value_bytes(0)) - remote_value_bytes(0)})
      QUIRE_CHECK(!seal.open("key", reply->bytes, bytes), "nobody has sealed that");
  }
}

}  // namespace
}  // namespace quire

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const quire::FuzzListener listener;
  if (size < 2 || !quire::check_remote_client()) return 0;
  quire::RemoteAddress address;
  address.unix_path = listener.path();
  address.password = data[0] % 2 == 0 ? "secret" : "";
  quire::RemoteConnection connection(address, {}, quire::kMostOfReply);
  const std::array<std::string, 2> words = {"GET", "key"};
  connection.send(words);
  const int peer = listener.take();
  connection.advance();
  const std::size_t piece = std::max<std::size_t>(1, data[1]);
  // A lost connection reads no more, so a send would block for ever once the socket is full.
  for (std::size_t at = 2; at < size && !connection.is_lost(); at += piece) {
    if (send(peer, data + at, std::min(piece, size - at), MSG_NOSIGNAL) < 0) break;
    quire::read_replies(connection, size);
  }
  close(peer);
  for (int i = 0; i < 4 && !connection.is_lost(); ++i) quire::read_replies(connection, size);
  QUIRE_CHECK(connection.is_lost(), "its other end is closed");
  return 0;
}
