# llguidance constrains structured output to its grammar. It is a Rust crate, built into an archive by tools/dev/llguidance.sh. Without
# llguidance, requests for structured output are refused.
option(QUIRE_GUIDANCE "Structured output, if llguidance's archive and header are found" ON)
set(QUIRE_LLGUIDANCE_DIR "${PROJECT_SOURCE_DIR}/.cache/llguidance" CACHE PATH "Folder with llguidance's lib and include")
if(LLGUIDANCE_LIBRARY AND NOT EXISTS "${LLGUIDANCE_LIBRARY}")  # it was there when this folder was configured
  unset(LLGUIDANCE_INCLUDE CACHE)
  unset(LLGUIDANCE_LIBRARY CACHE)
endif()
find_path(LLGUIDANCE_INCLUDE llguidance.h HINTS "${QUIRE_LLGUIDANCE_DIR}/include")
find_library(LLGUIDANCE_LIBRARY libllguidance.a HINTS "${QUIRE_LLGUIDANCE_DIR}/lib")
include(GNUInstallDirs)
if(QUIRE_GUIDANCE AND LLGUIDANCE_INCLUDE AND LLGUIDANCE_LIBRARY)
  add_library(llguidance_c INTERFACE)
  target_include_directories(llguidance_c SYSTEM INTERFACE $<BUILD_INTERFACE:${LLGUIDANCE_INCLUDE}>)
  target_link_libraries(llguidance_c INTERFACE $<BUILD_INTERFACE:${LLGUIDANCE_LIBRARY}>
                        $<INSTALL_INTERFACE:$<INSTALL_PREFIX>/${CMAKE_INSTALL_LIBDIR}/quire/libllguidance.a> ${CMAKE_DL_LIBS})
  install(FILES "${LLGUIDANCE_LIBRARY}" DESTINATION ${CMAKE_INSTALL_LIBDIR}/quire)
  set(QUIRE_LLGUIDANCE_LIBS llguidance_c)
  set(QUIRE_LLGUIDANCE_UNUSED llguidance_absent.cpp)
else()
  set(QUIRE_LLGUIDANCE_LIBS "")
  set(QUIRE_LLGUIDANCE_UNUSED llguidance.cpp)
endif()
