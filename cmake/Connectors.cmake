# Shared libraries that connectors come from, for the tests: those of examples/connectors, which know the public headers alone, and one that
# says it is of another version.
if(NOT QUIRE_BUILD_TESTS)
  return()
endif()
file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/examples/connectors/*.cpp")
add_library(quire_example_connectors MODULE ${sources})
add_library(quire_old_connectors MODULE "${PROJECT_SOURCE_DIR}/tests/support/old_connectors.cpp")
foreach(library quire_example_connectors quire_old_connectors)
  target_compile_features(${library} PRIVATE cxx_std_23)
  target_compile_options(${library} PRIVATE ${QUIRE_WARNINGS})
  set_target_properties(${library} PROPERTIES ${QUIRE_VISIBILITY})
  target_include_directories(${library} PRIVATE "${PROJECT_SOURCE_DIR}/include")
  target_link_libraries(${library} PRIVATE quire_flags)
  add_dependencies(engine_test ${library})
endforeach()
target_compile_definitions(engine_test PRIVATE QUIRE_EXAMPLE_CONNECTORS="$<TARGET_FILE:quire_example_connectors>"
                                               QUIRE_OLD_CONNECTORS="$<TARGET_FILE:quire_old_connectors>")
