// The server's side of blocks that are given by name, from a shelf: which of the names it holds, and their bytes. The server's thread. A
// block that has gone meanwhile is told of as gone.
#include "base/check.h"
#include "runtime/remote/peer_server_state.h"

namespace quire {

bool PeerServer::answer_names(Client& client, const PeerFrame& frame) {
  std::optional<PeerNames> names = seal_.read_names(frame, client.session);
  if (!names) return refuse(client, PeerEnd::not_verified);
  if (options_.shelf == nullptr) return refuse(client, PeerEnd::shares_nothing);
  client.takes_names = true;
  if (frame.kind == PeerKind::take) {
    client.taken = std::move(names->names);
    client.next_taken = 0;
    client.taken_number = names->number;
    return true;
  }
  PeerFound found{.number = names->number, .has = {}};
  found.has.reserve(names->names.size());
  for (const OffloadKey& name : names->names) found.has.push_back(options_.shelf->holds(name));
  seal_.add_found(client.link.out(), client.session, found);
  return true;
}

void PeerServer::send_taken(Client& client) {
  const OffloadKey& name = client.taken[client.next_taken];
  const std::uint32_t number = client.taken_number + static_cast<std::uint32_t>(client.next_taken);
  ++client.next_taken;
  std::vector<std::byte>& out = client.link.out();
  QUIRE_CHECK(out.empty(), "one block at a time");
  const std::uint32_t bytes = options_.shelf->block_bytes(name.group);
  if (bytes == 0 || !options_.shelf->read(name, PeerSeal::add_block(out, number, bytes))) {
    out.clear();
    seal_.add_gone(out, client.session, number);
    return;
  }
  seal_.seal_block(out, client.session, name, bytes);
  const std::lock_guard lock(mutex_);
  ++stats_.num_sent;
  stats_.bytes_sent += bytes;
}

}  // namespace quire
