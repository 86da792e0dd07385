# libquire.so contains all rooms except the command line and the downloads that only commands use. It exports only the functions of the
# public headers (include/quire/base/api.h).
# It is linked from the objects of the static libraries: nothing is compiled twice.
if(NOT QUIRE_BUILD_SHARED OR QUIRE_SANITIZE)
  return()
endif()
get_property(rooms GLOBAL PROPERTY QUIRE_ROOMS)
list(REMOVE_ITEM rooms quire_cli quire_hub)
add_library(quire_shared SHARED)
foreach(room IN LISTS rooms)
  target_sources(quire_shared PRIVATE $<TARGET_OBJECTS:${room}>)
  get_target_property(libraries ${room} INTERFACE_LINK_LIBRARIES)
  list(FILTER libraries EXCLUDE REGEX "^quire_")
  target_link_libraries(quire_shared PRIVATE ${libraries})
endforeach()
target_link_options(quire_shared PRIVATE "LINKER:--version-script=${PROJECT_SOURCE_DIR}/cmake/quire.map" LINKER:--no-undefined)
set_target_properties(quire_shared PROPERTIES LINKER_LANGUAGE CXX OUTPUT_NAME quire EXPORT_NAME shared VERSION ${PROJECT_VERSION}
                      SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}  # what is 0.x may change with x
                      LINK_DEPENDS "${PROJECT_SOURCE_DIR}/cmake/quire.map")
target_include_directories(quire_shared INTERFACE $<INSTALL_INTERFACE:include>)
target_compile_features(quire_shared INTERFACE cxx_std_23)
add_library(quire::shared ALIAS quire_shared)
