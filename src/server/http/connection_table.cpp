#include "server/http/connection_table.h"

namespace quire {

void ConnectionTable::add(Session* session) {
  std::list<Session*>& fresh = group(ConnectionState::new_client);
  places_.emplace(session, Place{ConnectionState::new_client, fresh.insert(fresh.end(), session)});
}

void ConnectionTable::remove(Session* session) {
  const auto place = places_.find(session);
  if (place == places_.end()) return;
  group(place->second.state).erase(place->second.at);
  places_.erase(place);
}

void ConnectionTable::set_state(Session* session, ConnectionState state) {
  const auto place = places_.find(session);
  if (place == places_.end() || place->second.state == state) return;
  std::list<Session*>& to = group(state);
  to.splice(to.end(), group(place->second.state), place->second.at);
  place->second.state = state;
}

Session* ConnectionTable::least_needed() const {
  const auto& fresh = groups_[static_cast<std::size_t>(ConnectionState::new_client)];
  const auto& idle = groups_[static_cast<std::size_t>(ConnectionState::idle)];
  if (fresh.empty() && idle.empty()) return nullptr;
  return fresh.size() >= idle.size() ? fresh.front() : idle.front();
}

}  // namespace quire
