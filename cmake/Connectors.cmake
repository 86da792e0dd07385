# Shared libraries with connectors. The library of examples/connectors uses only the public headers and is stored next to the command. A
# second library, for the tests, reports another version.
file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/examples/connectors/*.cpp")
add_library(quire_example_connectors MODULE ${sources})
set(libraries quire_example_connectors)
if(QUIRE_BUILD_TESTS)
  add_library(quire_old_connectors MODULE "${PROJECT_SOURCE_DIR}/tests/support/old_connectors.cpp")
  list(APPEND libraries quire_old_connectors)
endif()
foreach(library ${libraries})
  target_compile_features(${library} PRIVATE cxx_std_23)
  target_compile_options(${library} PRIVATE ${QUIRE_WARNINGS})
  set_target_properties(${library} PROPERTIES ${QUIRE_VISIBILITY})
  target_include_directories(${library} PRIVATE "${PROJECT_SOURCE_DIR}/include")
  target_link_libraries(${library} PRIVATE quire_flags)
endforeach()
# `quire serve --help` lists the connectors of this library, and quire searches for the library in the folder of the program.
add_dependencies(quire quire_example_connectors)
if(QUIRE_BUILD_TESTS)
  add_dependencies(engine_test ${libraries})
  target_compile_definitions(engine_test PRIVATE QUIRE_EXAMPLE_CONNECTORS="$<TARGET_FILE:quire_example_connectors>"
                                                 QUIRE_OLD_CONNECTORS="$<TARGET_FILE:quire_old_connectors>")
endif()
