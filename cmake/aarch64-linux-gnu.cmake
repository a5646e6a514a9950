# Cross-compiles for aarch64 with Debian's g++-aarch64-linux-gnu and the :arm64 packages of the libraries; tests run
# under qemu-aarch64. scripts/setup.sh aarch64 installs all of it. The environment variable QEMU_CPU chooses the
# emulated CPU; the default is `max`.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(FA_DEBIAN_ARCHITECTURE arm64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

# scripts/setup.sh aarch64 unpacks packages here that Debian cannot install next to this machine's own packages. The
# emulator looks for a program's files in this folder first.
cmake_path(SET FA_UNPACKED NORMALIZE ${CMAKE_CURRENT_LIST_DIR}/../build/aarch64-root)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L ${FA_UNPACKED})

# Debian's libraries for all processors share /usr/include and lie in /usr/lib/<processor>.
set(CMAKE_FIND_ROOT_PATH /usr/lib/aarch64-linux-gnu /usr/aarch64-linux-gnu /usr)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_IGNORE_PATH /usr/lib/x86_64-linux-gnu /usr/lib/x86_64-linux-gnu/openblas-pthread /usr/lib/x86_64-linux-gnu/cmake)
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)

# This machine's mpirun starts the ranks under the emulator. This machine's compiler wrapper of MPI is skipped, because
# it does not compile for aarch64.
set(MPI_SKIP_COMPILER_WRAPPER ON)
set(MPI_CXX_HEADER_DIR ${FA_UNPACKED}/usr/lib/aarch64-linux-gnu/openmpi/include CACHE PATH "")
set(MPI_CXX_SKIP_MPICXX ON CACHE BOOL "")
set(MPI_CXX_LIB_NAMES mpi CACHE STRING "")
set(MPI_mpi_LIBRARY ${FA_UNPACKED}/usr/lib/aarch64-linux-gnu/libmpi.so.40 CACHE FILEPATH "")
set(CMAKE_EXE_LINKER_FLAGS_INIT
    -Wl,-rpath-link,${FA_UNPACKED}/usr/lib/aarch64-linux-gnu:${FA_UNPACKED}/lib/aarch64-linux-gnu)
