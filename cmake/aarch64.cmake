# Cross build for aarch64 on Debian 12, with Debian's own compiler and its arm64 libraries: APT_AARCH64 in tools/dev/setup.sh. Tests run
# under qemu-user.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++-12)
# Without this, pkg-config finds the libraries of this machine.
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)
# Debian installs libonig-dev for one architecture at a time; the header is the same for both.
set(ONIGURUMA_LIBRARY /usr/lib/aarch64-linux-gnu/libonig.so.5 CACHE FILEPATH "")
find_program(QEMU_AARCH64 NAMES qemu-aarch64-static qemu-aarch64)
if(QEMU_AARCH64)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${QEMU_AARCH64})
endif()
