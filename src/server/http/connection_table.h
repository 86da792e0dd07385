#pragma once
// Tracks open connections. Chooses the connection to close when there is no room for a new client, and limits how many connections wait for
// answers.
#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <unordered_map>

namespace quire {

class Connection;

// The state of a connection:
// - new_client: no bytes or a partial header have arrived;
// - idle: between two requests;
// - receiving: a body is arriving, or an immediate answer is being sent;
// - busy: the request waits for the engine or the job pool.
enum class ConnectionState : std::uint8_t { new_client, idle, receiving, busy };

class ConnectionTable {
 public:
  struct Limits {
    std::size_t max_busy = 4096;  // connections that wait for an answer of the model
    bool limits_shares = false;   // clients are tenants; each may have up to four times as many busy connections as are free
  };

  explicit ConnectionTable(const Limits& limits) : limits_(limits) {}

  // Adds a connection in the state new_client. `client` is the client as far as it is known before a request.
  void add(Connection* connection, std::string client);
  void remove(Connection* connection);
  // Sets the state. Setting the current state again counts as progress: connections without progress are closed first.
  void set_state(Connection* connection, ConnectionState state);
  void set_client(Connection* connection, const std::string& client);

  [[nodiscard]] std::size_t size() const { return positions_.size(); }
  [[nodiscard]] bool contains(Connection* connection) const { return positions_.contains(connection); }
  // Returns the connection to close, or null if all connections are busy. Chooses the state (except busy) with the most connections, then
  // the client with the most connections in that state, then the client's connection with the oldest progress. Connections of one state or
  // client therefore do not displace others.
  [[nodiscard]] Connection* choose_connection_to_close() const;
  // Returns whether the client of this connection may have one more busy connection.
  [[nodiscard]] bool has_room(Connection* connection) const;

  // Calls `visit` for each connection. `visit` may remove its argument.
  template <class Visit>
  void for_each(const Visit& visit) const {
    std::list<Connection*> all;
    for (const auto& [connection, position] : positions_) all.push_back(connection);
    for (Connection* connection : all) visit(connection);
  }

 private:
  using Waiting = std::list<Connection*>;  // ordered by progress, the oldest progress first
  struct Group {
    std::map<std::string, Waiting> of_client;  // clients without connections are erased
    std::size_t size = 0;
  };
  // The position of a connection in the lists, so that it is found without a search.
  struct Position {
    ConnectionState state;
    std::string client;
    Waiting::iterator at;
  };
  [[nodiscard]] Group& group(ConnectionState state) { return groups_[static_cast<std::size_t>(state)]; }
  [[nodiscard]] const Group& group(ConnectionState state) const { return groups_[static_cast<std::size_t>(state)]; }
  void put(Connection* connection, Position& position);
  void take(const Position& position);

  const Limits limits_;
  std::array<Group, 4> groups_;  // one per state
  std::unordered_map<Connection*, Position> positions_;
};

}  // namespace quire
