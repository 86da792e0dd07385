#pragma once
// Symbol visibility of libquire.so: it exports the declarations of the public headers only.
#define QUIRE_API __attribute__((visibility("default")))
#define QUIRE_HIDDEN __attribute__((visibility("hidden")))  // private parts of an exported class
