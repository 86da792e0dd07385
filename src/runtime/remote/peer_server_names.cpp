// Answers requests by offload key from a `PeerBlockSource`: which keys the source holds, and the bytes of blocks. Runs on the server's
// thread. A block that was evicted in the meantime is reported as gone.
#include "base/check.h"
#include "runtime/remote/peer_server_state.h"

namespace quire {

bool PeerServer::handle_keys(Client& client, const PeerFrame& frame) {
  std::optional<PeerKeyList> names = codec_.read_keys(frame, client.session);
  if (!names) return refuse(client, PeerCloseReason::not_verified);
  client.is_verified = true;
  if (options_.block_source == nullptr) return refuse(client, PeerCloseReason::no_block_sharing);
  client.is_block_client = true;
  if (frame.kind == PeerKind::take) {
    client.taken = std::move(names->names);
    client.next_taken = 0;
    client.first_sequence_number = names->number;
    return true;
  }
  PeerFound found{.number = names->number, .has = {}};
  found.has.reserve(names->names.size());
  for (const OffloadKey& name : names->names) found.has.push_back(options_.block_source->holds(name));
  codec_.add_found(client.link.out(), client.session, found);
  return true;
}

void PeerServer::send_requested_blocks(Client& client) {
  const OffloadKey& name = client.taken[client.next_taken];
  const std::uint32_t number = client.first_sequence_number + static_cast<std::uint32_t>(client.next_taken);
  ++client.next_taken;
  std::vector<std::byte>& out = client.link.out();
  QUIRE_CHECK(out.empty(), "the output buffer is empty before a block is added");
  const std::uint32_t bytes = options_.block_source->block_bytes(name.group);
  if (bytes == 0 || !options_.block_source->read(name, PeerFrameCodec::add_block(out, number, bytes))) {
    out.clear();
    codec_.add_gone(out, client.session, number);
    return;
  }
  codec_.seal_block(out, client.session, name, bytes);
  const std::lock_guard lock(mutex_);
  ++stats_.num_sent;
  stats_.bytes_sent += bytes;
}

}  // namespace quire
