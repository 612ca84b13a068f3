# Where an installation's files go, and how its programs find libraries.
include(GNUInstallDirs)

# The folders of libraries outside the system's, as with -DHDF5_ROOT=/its/prefix, stay in the installed programs. CMake
# removes them otherwise, and the programs do not start.
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)

# Module files for Lmod and Environment Modules, in one folder. The prefix is known when Trireme is installed.
set(TRIREME_MODULES "" CACHE STRING "Modules that the installed module file loads, such as cray-mpich;cray-hdf5")
set(TRIREME_MODULE_FOLDER share/modulefiles)
set(TRIREME_PREFIX "@TRIREME_PREFIX@")
string(REGEX REPLACE "([^;]+);?" "depends_on(\"\\1\")\n" TRIREME_LUA_MODULES "${TRIREME_MODULES}")
string(REGEX REPLACE "([^;]+);?" "module load \\1\n" TRIREME_TCL_MODULES "${TRIREME_MODULES}")
foreach(kind lua tcl)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/module.${kind}.in ${PROJECT_BINARY_DIR}/module.${kind}.in @ONLY)
  install(CODE "get_filename_component(TRIREME_PREFIX \"\${CMAKE_INSTALL_PREFIX}\" ABSOLUTE)
    configure_file(\"${PROJECT_BINARY_DIR}/module.${kind}.in\" \"${PROJECT_BINARY_DIR}/module.${kind}\" @ONLY)")
endforeach()
install(FILES ${PROJECT_BINARY_DIR}/module.lua DESTINATION ${TRIREME_MODULE_FOLDER}/trireme RENAME ${PROJECT_VERSION}.lua)
install(FILES ${PROJECT_BINARY_DIR}/module.tcl DESTINATION ${TRIREME_MODULE_FOLDER}/trireme RENAME ${PROJECT_VERSION})
