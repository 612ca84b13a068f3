# Where an installation's files go, and how its programs find libraries.
include(GNUInstallDirs)

# The folders of libraries outside the system's, as with -DHDF5_ROOT=/its/prefix, stay in the installed programs. CMake
# removes them otherwise, and the programs do not start.
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)
