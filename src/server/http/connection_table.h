#pragma once
// Which connections are open, and which of them are given up for a new one when there is no room.
#include <cstddef>
#include <cstdint>
#include <list>
#include <unordered_map>

namespace quire {

class Session;

// What a connection is about: nothing yet, or half a header (new_client); between two requests (idle); a request, or its answer (busy).
enum class ConnectionState : std::uint8_t { new_client, idle, busy };

class ConnectionTable {
 public:
  void add(Session* session);  // as new_client
  void remove(Session* session);
  void set_state(Session* session, ConnectionState state);

  [[nodiscard]] std::size_t size() const { return places_.size(); }
  [[nodiscard]] bool contains(Session* session) const { return places_.contains(session); }
  // The one that has waited longest, of the larger group of the new and the idle: neither thousands of half headers nor thousands of idle
  // connections can push out the other kind. Null where all are busy.
  [[nodiscard]] Session* least_needed() const;

  // `visit` may remove the session it is given.
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (const std::list<Session*>& group : groups_)
      for (Session* session : std::list<Session*>(group)) visit(session);
  }

 private:
  // Where a connection stands, to find it without a search.
  struct Place {
    ConnectionState state;
    std::list<Session*>::iterator at;
  };
  [[nodiscard]] std::list<Session*>& group(ConnectionState state) { return groups_[static_cast<std::size_t>(state)]; }

  std::list<Session*> groups_[3];  // in the order of coming to this state
  std::unordered_map<Session*, Place> places_;
};

}  // namespace quire
