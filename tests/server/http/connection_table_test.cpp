// Tests which connection is closed to admit a new one, and how many connections may wait for answers. The table only compares the pointers
// it is given.
#include "server/http/connection_table.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace quire {
namespace {

class ConnectionTableTest : public testing::Test {
 protected:
  Connection* connection(std::size_t number) { return reinterpret_cast<Connection*>(&places_[number]); }
  void add(std::size_t from, std::size_t to, ConnectionState state, const std::string& client = "a") {
    for (std::size_t i = from; i < to; ++i) {
      table_.add(connection(i), client);
      table_.set_state(connection(i), state);
    }
  }

  std::array<char, 8192> places_{};
  ConnectionTable table_{{.max_busy = 8, .limits_shares = true}};
};

TEST_F(ConnectionTableTest, ClosesAConnectionOfTheMostFrequentState) {
  for (const ConnectionState many : {ConnectionState::new_client, ConnectionState::idle, ConnectionState::receiving}) {
    ConnectionTable table({});
    std::size_t next = 0;
    for (const ConnectionState few :
         {ConnectionState::new_client, ConnectionState::idle, ConnectionState::receiving, ConnectionState::busy})
      for (int i = 0; i < (few == many ? 4000 : 3); ++i, ++next) {
        table.add(connection(next), "a");
        table.set_state(connection(next), few);
      }
    // No other connection is closed until all states have equally many.
    for (int i = 0; i < 3997; ++i) {
      Connection* const given_up = table.choose_connection_to_close();
      ASSERT_NE(given_up, nullptr);
      table.remove(given_up);
    }
    EXPECT_EQ(table.size(), 12U);
    std::size_t kept = 0;
    for (std::size_t i = 0; i < next; ++i) kept += table.contains(connection(i)) ? 1 : 0;
    EXPECT_EQ(kept, 12U);
    // The order among states with three connections does not matter, but no state may be skipped.
    for (int i = 0; i < 9; ++i) table.remove(table.choose_connection_to_close());
    EXPECT_EQ(table.choose_connection_to_close(), nullptr) << "busy connections are never closed";
  }
}

TEST_F(ConnectionTableTest, KeepsNewClientsWhenThousandsAreIdle) {
  add(0, 10, ConnectionState::new_client);
  add(10, 4000, ConnectionState::idle);
  for (int i = 0; i < 3000; ++i) {
    Connection* const given_up = table_.choose_connection_to_close();
    table_.remove(given_up);
    ASSERT_TRUE(given_up >= connection(10)) << i;
  }
}

TEST_F(ConnectionTableTest, ClosesTheConnectionWithTheOldestProgressFirst) {
  add(0, 3, ConnectionState::receiving);
  EXPECT_EQ(table_.choose_connection_to_close(), connection(0));
  table_.set_state(connection(0), ConnectionState::receiving);
  EXPECT_EQ(table_.choose_connection_to_close(), connection(1));
}

TEST_F(ConnectionTableTest, ClosesConnectionsOfTheClientWithTheMost) {
  add(0, 2, ConnectionState::idle, "good");
  add(2, 10, ConnectionState::idle, "many");
  for (int i = 0; i < 6; ++i) table_.remove(table_.choose_connection_to_close());
  EXPECT_TRUE(table_.contains(connection(0)));
  EXPECT_TRUE(table_.contains(connection(1)));
  table_.set_client(connection(8), "good");
  EXPECT_EQ(table_.choose_connection_to_close(), connection(0)) << "now this client has the most connections";
}

TEST_F(ConnectionTableTest, LimitsBusyConnectionsPerClient) {
  const auto fill = [&](std::size_t from, const std::string& client) {
    std::size_t count = 0;
    for (; count < 100; ++count) {
      table_.add(connection(from + count), client);
      if (!table_.has_room(connection(from + count))) return count;
      table_.set_state(connection(from + count), ConnectionState::busy);
    }
    return count;
  };
  EXPECT_EQ(fill(0, "a"), 7U);
  EXPECT_EQ(fill(100, "b"), 1U);
  EXPECT_EQ(fill(200, "c"), 0U) << "all eight connections are busy";
  table_.remove(connection(0));
  EXPECT_EQ(fill(300, "c"), 1U);
}

TEST_F(ConnectionTableTest, OneAddressMayHaveAllBusyConnectionsWithoutTenants) {
  ConnectionTable table({.max_busy = 8});
  for (std::size_t i = 0; i < 8; ++i) {
    table.add(connection(i), "a");
    ASSERT_TRUE(table.has_room(connection(i)));
    table.set_state(connection(i), ConnectionState::busy);
  }
  table.add(connection(9), "b");
  EXPECT_FALSE(table.has_room(connection(9)));
}

TEST_F(ConnectionTableTest, ClientThatIsSetAgainIsNoProgress) {
  for (std::size_t i = 0; i < 2; ++i) table_.add(connection(i), "a");
  table_.set_client(connection(0), "a");
  EXPECT_EQ(table_.choose_connection_to_close(), connection(0)) << "it has made no progress";
  table_.set_state(connection(0), ConnectionState::new_client);
  EXPECT_EQ(table_.choose_connection_to_close(), connection(1)) << "the same state again is progress";
}

TEST_F(ConnectionTableTest, IgnoresConnectionsThatItDoesNotHold) {
  table_.add(connection(0), "a");
  table_.set_client(connection(1), "a");
  table_.set_state(connection(1), ConnectionState::idle);
  table_.remove(connection(1));
  EXPECT_EQ(table_.size(), 1U);
  EXPECT_FALSE(table_.contains(connection(1)));
  EXPECT_TRUE(table_.has_room(connection(1)));
  table_.remove(connection(0));
  EXPECT_EQ(table_.size(), 0U);
  EXPECT_EQ(table_.choose_connection_to_close(), nullptr);
}

TEST_F(ConnectionTableTest, ClosesNewClientsBeforeOthersOfEqualNumber) {
  table_.add(connection(0), "a");
  table_.set_state(connection(0), ConnectionState::idle);
  table_.add(connection(1), "a");
  table_.set_state(connection(1), ConnectionState::receiving);
  EXPECT_EQ(table_.choose_connection_to_close(), connection(1)) << "receiving before idle";
  table_.add(connection(2), "a");
  EXPECT_EQ(table_.choose_connection_to_close(), connection(2));
}

TEST_F(ConnectionTableTest, VisitsEachConnectionAlsoWhileItIsRemoved) {
  for (std::size_t i = 0; i < 5; ++i) table_.add(connection(i), "a");
  std::size_t num_visited = 0;
  table_.for_each([&](Connection* one) {
    table_.remove(one);
    ++num_visited;
  });
  EXPECT_EQ(num_visited, 5U);
  EXPECT_EQ(table_.size(), 0U);
}

TEST_F(ConnectionTableTest, TenantMayHoldFourTimesTheFreePart) {
  // The table allows 8 busy connections. While one is free, a tenant with 3 may have another (3 < 4), and a tenant with 4 may not.
  const auto hold = [&](std::size_t from, std::size_t to, const char* client) {
    for (std::size_t i = from; i < to; ++i) {
      table_.add(connection(i), client);
      table_.set_state(connection(i), ConnectionState::busy);
    }
  };
  hold(0, 3, "a");
  hold(3, 7, "b");
  table_.add(connection(10), "a");
  table_.add(connection(11), "b");
  EXPECT_TRUE(table_.has_room(connection(10)));
  EXPECT_FALSE(table_.has_room(connection(11)));
  table_.set_state(connection(10), ConnectionState::busy);
  table_.add(connection(12), "c");
  EXPECT_FALSE(table_.has_room(connection(12))) << "all are busy";
}

}  // namespace
}  // namespace quire
