# cmake --install: the `quire` command, the public headers, the libraries, and a package for find_package(quire).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

add_library(quire_lib INTERFACE)
target_link_libraries(quire_lib INTERFACE quire_engine quire_server quire_text quire_core_offload quire_lab)
set_target_properties(quire_lib PROPERTIES EXPORT_NAME quire)
add_library(quire::quire ALIAS quire_lib)

get_property(rooms GLOBAL PROPERTY QUIRE_ROOMS)
# Builds the targets that the installation needs and an earlier build left out: `./dev serve` builds only the command.
add_custom_target(quire_installed DEPENDS quire quire_flags quire_example_connectors ${rooms})
foreach(library IN ITEMS quire_shared quire_c)
  if(TARGET ${library})
    add_dependencies(quire_installed ${library})
  endif()
endforeach()
install(CODE "execute_process(COMMAND \"${CMAKE_COMMAND}\" --build \"${CMAKE_BINARY_DIR}\" --target quire_installed COMMAND_ERROR_IS_FATAL ANY)")
install(TARGETS quire_lib quire_flags ${QUIRE_LLGUIDANCE_LIBS} ${rooms} EXPORT quireTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}/quire)
if(TARGET quire_shared)
  install(TARGETS quire_shared EXPORT quireTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
# The C API needs no other library and no package, so it has a separate set of targets: find_package(quire COMPONENTS c).
if(TARGET quire_c)
  install(TARGETS quire_c EXPORT quireCTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT quireCTargets NAMESPACE quire:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/quire)
  # The prefix is found from the file's place, so that the installation can be moved.
  file(RELATIVE_PATH QUIRE_PC_PREFIX "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" /)
  configure_file(cmake/quire.pc.in "${CMAKE_BINARY_DIR}/quire.pc" @ONLY)
  install(FILES "${CMAKE_BINARY_DIR}/quire.pc" DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()
install(TARGETS quire_example_connectors LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/quire)
install(DIRECTORY include/quire DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT quireTargets NAMESPACE quire:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/quire)
configure_package_config_file(cmake/quireConfig.cmake.in "${CMAKE_BINARY_DIR}/quireConfig.cmake"
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/quire)
write_basic_package_version_file("${CMAKE_BINARY_DIR}/quireConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_BINARY_DIR}/quireConfig.cmake" "${CMAKE_BINARY_DIR}/quireConfigVersion.cmake"
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/quire)

if(QUIRE_BUILD_TESTS AND NOT QUIRE_SANITIZE)
  add_test(NAME install_consumer
           COMMAND "${PROJECT_SOURCE_DIR}/tests/install/run.sh" "${CMAKE_COMMAND}" "${CMAKE_BINARY_DIR}" "${CMAKE_CXX_COMPILER}")
  set_tests_properties(install_consumer PROPERTIES LABELS install TIMEOUT 300)
endif()
