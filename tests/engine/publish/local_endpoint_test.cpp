#include "engine/publish/local_endpoint.h"

#include <gtest/gtest.h>

#include <string>

namespace quire {
namespace {

TEST(BindableEndpoint, KeepsLocalEndpoints) {
  for (const std::string endpoint : {"tcp://*:5557", "tcp://127.0.0.1:1", "tcp://127.8.9.10:5557", "tcp://0.0.0.0:80", "tcp://[::]:5557",
                                     "tcp://[::1]:5557", "tcp://lo:5557", "tcp://*:*", "ipc:///tmp/events", "inproc://events"})
    EXPECT_EQ(bindable_endpoint(endpoint), endpoint);
}

TEST(BindableEndpoint, KeepsEndpointsThatAreNoTcpAddressWithAPort) {
  for (const std::string endpoint :
       {"tcp://:5557", "tcp://127.0.0.1", "tcp://localhost", "ipc://192.0.2.7:1", "udp://192.0.2.7:5557", "tcp:/192.0.2.7:5557", ""})
    EXPECT_EQ(bindable_endpoint(endpoint), endpoint);
}

// An address in brackets is one of version 6. One bracket alone is part of a name, and no machine has it.
TEST(BindableEndpoint, ReadsBracketsInPairs) {
  EXPECT_EQ(bindable_endpoint("tcp://[127.0.0.1]:5557"), "tcp://127.0.0.1:5557");
  for (const char* endpoint : {"tcp://[::1:5557", "tcp://127.0.0.1]:5557"}) EXPECT_EQ(bindable_endpoint(endpoint), "") << endpoint;
}

// ZeroMQ does not bind host names.
TEST(BindableEndpoint, ResolvesAHostNameToItsAddress) {
  const std::string own = bindable_endpoint("tcp://localhost:7777");
  EXPECT_TRUE(own == "tcp://127.0.0.1:7777" || own == "tcp://[::1]:7777") << own;
}

// 192.0.2.0/24 and 2001:db8::/32 are reserved for documentation: no machine has an address in them. The neighbours of 127.0.0.0/8 and of
// ::1 belong to the Internet.
TEST(BindableEndpoint, IsEmptyForAddressesOfOtherMachines) {
  for (const char* endpoint : {"tcp://192.0.2.7:5557", "tcp://126.0.0.1:5557", "tcp://128.0.0.1:5557", "tcp://[2001:db8::1]:5557",
                               "tcp://[::2]:5557", "tcp://no such host.invalid:5557"})
    EXPECT_EQ(bindable_endpoint(endpoint), "") << endpoint;
}

}  // namespace
}  // namespace quire
