#pragma once
// What libquire.so shows and hides: its users depend on the public headers alone.
#define QUIRE_API __attribute__((visibility("default")))
#define QUIRE_HIDDEN __attribute__((visibility("hidden")))  // the inside of a class that is shown
