#include "server/http/connection_table.h"

#include <algorithm>
#include <utility>

namespace quire {

void ConnectionTable::put(Connection* connection, Position& position) {
  Group& to = group(position.state);
  Waiting& waiting = to.of_client[position.client];
  position.at = waiting.insert(waiting.end(), connection);
  ++to.size;
}

void ConnectionTable::take(const Position& position) {
  Group& from = group(position.state);
  const auto waiting = from.of_client.find(position.client);
  waiting->second.erase(position.at);
  if (waiting->second.empty()) from.of_client.erase(waiting);
  --from.size;
}

void ConnectionTable::add(Connection* connection, std::string client) {
  Position& position = positions_.emplace(connection, Position{ConnectionState::new_client, std::move(client), {}}).first->second;
  put(connection, position);
}

void ConnectionTable::remove(Connection* connection) {
  const auto position = positions_.find(connection);
  if (position == positions_.end()) return;
  take(position->second);
  positions_.erase(position);
}

void ConnectionTable::set_state(Connection* connection, ConnectionState state) {
  const auto position = positions_.find(connection);
  if (position == positions_.end()) return;
  take(position->second);
  position->second.state = state;
  put(connection, position->second);
}

void ConnectionTable::set_client(Connection* connection, const std::string& client) {
  const auto position = positions_.find(connection);
  if (position == positions_.end() || position->second.client == client) return;
  take(position->second);
  position->second.client = client;
  put(connection, position->second);
}

Connection* ConnectionTable::choose_connection_to_close() const {
  const Group* largest = &group(ConnectionState::new_client);
  for (const ConnectionState state : {ConnectionState::receiving, ConnectionState::idle})
    if (group(state).size > largest->size) largest = &group(state);
  if (largest->size == 0) return nullptr;
  const auto most = std::ranges::max_element(largest->of_client, {}, [](const auto& entry) { return entry.second.size(); });
  return most->second.front();
}

bool ConnectionTable::has_room(Connection* connection) const {
  const Group& busy = group(ConnectionState::busy);
  if (busy.size >= limits_.max_busy) return false;
  const auto position = positions_.find(connection);
  if (!limits_.limits_shares || position == positions_.end()) return true;
  const auto own = busy.of_client.find(position->second.client);
  return own == busy.of_client.end() || own->second.size() < 4 * (limits_.max_busy - busy.size);
}

}  // namespace quire
