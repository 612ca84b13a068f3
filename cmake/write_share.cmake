# The files below share/ that the program writes: cmake -DPROGRAM=… -DFOLDER=… -P write_share.cmake
file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER})
execute_process(COMMAND ${PROGRAM} help --share ${FOLDER} RESULT_VARIABLE code ERROR_VARIABLE said)
if(NOT code EQUAL 0)
  message(WARNING "${PROGRAM} does not run here (${code}: ${said}): no manual pages and completion scripts are installed")
endif()
