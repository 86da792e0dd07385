#pragma once
// Tracks open connections, chooses the connection to close for a new client when there is no room, and limits how many wait for answers.
#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <unordered_map>

namespace quire {

class Connection;

// State of a connection. new_client: nothing or a partial header has arrived. idle: it is between two requests. receiving: a body is
// arriving, or an immediate answer is being sent. busy: the request waits for the engine or the job pool.
enum class ConnectionState : std::uint8_t { new_client, idle, receiving, busy };

class ConnectionTable {
 public:
  struct Limits {
    std::size_t max_busy = 4096;  // connections that wait for answers of the model
    bool limits_shares = false;   // clients are tenants: each may hold up to four times the free part of `max_busy`
  };

  explicit ConnectionTable(const Limits& limits) : limits_(limits) {}

  // Adds a connection in the state new_client. `client`: its client, as far as it is known.
  void add(Connection* connection, std::string client);
  void remove(Connection* connection);
  // Setting the current state again counts as progress: the connection is then closed after connections without progress.
  void set_state(Connection* connection, ConnectionState state);
  void set_client(Connection* connection, const std::string& client);

  [[nodiscard]] std::size_t size() const { return positions_.size(); }
  [[nodiscard]] bool contains(Connection* connection) const { return positions_.contains(connection); }
  // Returns the connection to close. It takes the state (except busy) with the most connections, then the client with the most in that
  // state, then its connection that has made no progress for longest. So connections of one state or client do not displace others. Null:
  // all are busy.
  [[nodiscard]] Connection* choose_connection_to_close() const;
  // Returns whether one more connection of this connection's client may be busy.
  [[nodiscard]] bool has_room(Connection* connection) const;

  // `visit` may remove the connection it is given.
  template <class Visit>
  void for_each(const Visit& visit) const {
    std::list<Connection*> all;
    for (const auto& [connection, position] : positions_) all.push_back(connection);
    for (Connection* connection : all) visit(connection);
  }

 private:
  using Waiting = std::list<Connection*>;  // in order of progress, the longest without progress first
  struct Group {
    std::map<std::string, Waiting> of_client;  // without empty lists
    std::size_t size = 0;
  };
  // The position of a connection, to find it without a search.
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
  std::array<Group, 4> groups_;  // [state]
  std::unordered_map<Connection*, Position> positions_;
};

}  // namespace quire
