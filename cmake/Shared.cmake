# The shared libraries. Each is linked from the objects of the static libraries: nothing is compiled twice.
# - libquire.so contains all rooms except the command line, the C API and the downloads that only commands use. It exports only the functions
#   of the public C++ headers (include/quire/base/api.h).
# - libquire_c.so contains the same rooms and the C API. It exports only the functions of include/quire/quire.h, so its interface does not
#   depend on a C++ compiler or on the version of quire.
if(QUIRE_SANITIZE)
  return()
endif()
# quire_shared_library(NAME SYMBOLS ROOM...): links the rooms' objects, and exports what the version script SYMBOLS lists.
function(quire_shared_library name symbols)
  add_library(${name} SHARED)
  foreach(room IN LISTS ARGN)
    target_sources(${name} PRIVATE $<TARGET_OBJECTS:${room}>)
    get_target_property(libraries ${room} INTERFACE_LINK_LIBRARIES)
    list(FILTER libraries EXCLUDE REGEX "^quire_")
    target_link_libraries(${name} PRIVATE ${libraries})
  endforeach()
  target_link_options(${name} PRIVATE "LINKER:--version-script=${PROJECT_SOURCE_DIR}/cmake/${symbols}" LINKER:--no-undefined)
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX VERSION ${PROJECT_VERSION} LINK_DEPENDS "${PROJECT_SOURCE_DIR}/cmake/${symbols}")
  target_include_directories(${name} INTERFACE $<INSTALL_INTERFACE:include>)
endfunction()

get_property(rooms GLOBAL PROPERTY QUIRE_ROOMS)
list(REMOVE_ITEM rooms quire_cli quire_hub)
if(QUIRE_BUILD_C)
  quire_shared_library(quire_c quire_c.map ${rooms})
  # The number changes only if a function is removed or changes its meaning. Threads of the library run its code, so it stays loaded.
  set_target_properties(quire_c PROPERTIES EXPORT_NAME c SOVERSION 0)
  target_link_options(quire_c PRIVATE LINKER:-z,nodelete)
  target_include_directories(quire_c INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
  add_library(quire::c ALIAS quire_c)
endif()
if(QUIRE_BUILD_SHARED)
  list(REMOVE_ITEM rooms quire_capi quire_cli_flags)
  quire_shared_library(quire_shared quire.map ${rooms})
  set_target_properties(quire_shared PROPERTIES OUTPUT_NAME quire EXPORT_NAME shared
                        SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})  # what is 0.x may change with x
  target_compile_features(quire_shared INTERFACE cxx_std_23)
  add_library(quire::shared ALIAS quire_shared)
endif()
